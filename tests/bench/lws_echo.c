/*
 * The peer of the admissions of a door: a bare libwebsockets server that accepts, upgrades and echoes.
 * Prints its port and serves on 127.0.0.1 until its standard input ends.
 */
#include <libwebsockets.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MESSAGE_MAX 4096

struct echo {
    size_t len;
    unsigned char data[LWS_PRE + MESSAGE_MAX];
};

static int on_event(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                    size_t len)
{
    struct echo *e = user;

    if (reason == LWS_CALLBACK_RECEIVE) {
        e->len = len < MESSAGE_MAX ? len : MESSAGE_MAX;
        memcpy(e->data + LWS_PRE, in, e->len);
        lws_callback_on_writable(wsi);
    } else if (reason == LWS_CALLBACK_SERVER_WRITEABLE && e->len > 0) {
        if (lws_write(wsi, e->data + LWS_PRE, e->len, LWS_WRITE_TEXT) < 0)
            return -1;
        e->len = 0;
    }
    return 0;
}

static bool input_ended(void)
{
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    char c;

    return poll(&p, 1, 0) > 0 && read(STDIN_FILENO, &c, 1) <= 0;
}

/* libwebsockets wakes at least once a second by itself only when it has a timer. */
static void tick(lws_sorted_usec_list_t *sul)
{
    (void)sul;
}

int main(void)
{
    static const struct lws_protocols protocols[] = {
        {.name = "leasehold.door.v1",
         .callback = on_event,
         .per_session_data_size = sizeof(struct echo),
         .rx_buffer_size = MESSAGE_MAX},
        {0},
    };
    struct lws_context_creation_info info = {
        .port = 0, .iface = "127.0.0.1", .protocols = protocols, .gid = -1, .uid = -1};
    lws_sorted_usec_list_t sul = {0};

    lws_set_log_level(0, NULL);
    struct lws_context *context = lws_create_context(&info);
    if (!context)
        return 1;
    printf("%d\n", lws_get_vhost_listen_port(lws_get_vhost_by_name(context, "default")));
    fflush(stdout);
    while (!input_ended()) {
        lws_sul_schedule(context, 0, &sul, tick, 500 * LWS_US_PER_MS);
        if (lws_service(context, 0) < 0)
            break;
    }
    lws_context_destroy(context);
    return 0;
}
