#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "leasehold/json.h"
#include "leasehold/log.h"

#define TEXT_MAX (1 << 20)

struct sink {
    int fd;
    struct log *log;
    char text[TEXT_MAX];
};

static struct sink sink;

static void sink_open(enum log_level level, enum log_format format)
{
    sink.fd = memfd_create("log", MFD_CLOEXEC);
    assert_true(sink.fd >= 0);
    sink.log = log_new(sink.fd, level, format);
    assert_non_null(sink.log);
}

/* Everything written so far; closes the sink. */
static char *sink_close(void)
{
    ssize_t n = pread(sink.fd, sink.text, TEXT_MAX - 1, 0);
    assert_true(n >= 0);
    sink.text[n] = '\0';
    log_free(sink.log);
    close(sink.fd);
    return sink.text;
}

/* Is it one line, and valid JSON? */
static void assert_json_line(const char *text)
{
    struct err e;
    size_t len = strlen(text);
    assert_true(len > 0 && text[len - 1] == '\n');
    assert_ptr_equal(strchr(text, '\n'), text + len - 1);
    if (json_check(text, len, true, &e) != 0) {
        fail_msg("%s: %s", e.msg, text);
    }
}

static void an_event_is_one_json_line(void **state)
{
    (void)state;
    struct id id;
    assert_true(id_parse("0f5d2c1a9b3e4c7d8a6f0123456789ab", 32, &id));
    sink_open(LOG_DEBUG, LOG_JSON);
    log_event(sink.log, LOG_INFO, "sandbox_created", LF_ID("session_id", &id), LF_INT("ms", -12),
              LF_STR("user", "\"q\"\n\xd0\xb6\xff"), LF_STR("none", NULL), LF_ID("no_id", NULL));
    char *text = sink_close();
    assert_json_line(text);
    assert_non_null(strstr(text, "Z\",\"level\":\"info\",\"event\":\"sandbox_created\","
                                 "\"session_id\":\"0f5d2c1a-9b3e-4c7d-8a6f-0123456789ab\","
                                 "\"ms\":-12,\"user\":\"\\\"q\\\"\\n\xd0\xb6\xef\xbf\xbd\","
                                 "\"none\":null,\"no_id\":null}\n"));
}

static void text_quotes_what_is_not_a_plain_word(void **state)
{
    (void)state;
    sink_open(LOG_DEBUG, LOG_TEXT);
    log_event(sink.log, LOG_WARNING, "odd", LF_STR("path", "/a/b"), LF_STR("detail", "x y\nz"),
              LF_STR("empty", ""), LF_INT("n", 3));
    char *text = sink_close();
    assert_non_null(strstr(text, "Z warning odd path=/a/b detail=\"x y\\nz\" empty=\"\" n=3\n"));
}

static void events_below_the_level_are_dropped(void **state)
{
    (void)state;
    sink_open(LOG_WARNING, LOG_JSON);
    log_event(sink.log, LOG_INFO, "quiet");
    log_set_level(sink.log, LOG_DEBUG);
    log_event(sink.log, LOG_DEBUG, "loud");
    char *text = sink_close();
    assert_json_line(text);
    assert_null(strstr(text, "quiet"));
    assert_non_null(strstr(text, "loud"));
}

static void errors_carry_code_detail_and_errno(void **state)
{
    (void)state;
    struct err e;
    err_sys(&e, ERR_STORAGE_FULL, ENOSPC, "write");
    sink_open(LOG_ERROR, LOG_JSON);
    log_error(sink.log, "save_failed", &e, LF_INT("n", 1));
    log_error(sink.log, "save_failed", &e);
    char *text = sink_close();
    assert_non_null(strstr(text, "\"code\":\"storage_full\",\"detail\":\"write: No space left on "
                                 "device\",\"errno\":28,\"n\":1}\n"));
}

static void long_lines_are_cut_and_stay_json(void **state)
{
    (void)state;
    static char value[20000];
    static const char *const pieces[] = {"x", "\xd0\xb6", "\x01", "\xff", "\xf0\x9f\x98\x80"};
    for (size_t p = 0; p < sizeof(pieces) / sizeof(pieces[0]); p++) {
        for (size_t head = 0; head < 7; head++) {
            memset(value, 'a', head);
            size_t len = head;
            while (len + 4 < sizeof(value)) {
                memcpy(value + len, pieces[p], strlen(pieces[p]));
                len += strlen(pieces[p]);
            }
            value[len] = '\0';
            sink_open(LOG_DEBUG, LOG_JSON);
            log_event(sink.log, LOG_INFO, "long", LF_STR("value", value), LF_INT("after", 1));
            char *text = sink_close();
            assert_json_line(text);
            assert_in_range(strlen(text), 8100, 8192);
            assert_non_null(strstr(text, ",\"truncated\":true}\n"));
        }
    }
}

static void *write_many(void *arg)
{
    for (int i = 0; i < 500; i++) {
        log_event((struct log *)arg, LOG_INFO, "tick", LF_INT("i", i),
                  LF_STR("pad", "................................................"));
    }
    return NULL;
}

static void lines_of_many_threads_stay_whole(void **state)
{
    (void)state;
    pthread_t threads[4];
    sink_open(LOG_DEBUG, LOG_JSON);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, write_many, sink.log), 0);
    }
    log_set_level(sink.log, LOG_INFO);
    for (size_t i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    int lines = 0;
    char *rest = NULL;
    for (char *line = strtok_r(sink_close(), "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest), lines++) {
        struct err e;
        assert_int_equal(json_check(line, strlen(line), true, &e), 0);
    }
    assert_int_equal(lines, 2000);
}

static void no_log_and_no_reader_are_survived(void **state)
{
    (void)state;
    log_event(NULL, LOG_ERROR, "nobody");
    struct log *l = log_new(-1, LOG_DEBUG, LOG_JSON);
    errno = 7;
    log_event(l, LOG_ERROR, "nobody");
    assert_int_equal(errno, 7);
    log_free(l);
    log_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_event_is_one_json_line),
        cmocka_unit_test(text_quotes_what_is_not_a_plain_word),
        cmocka_unit_test(events_below_the_level_are_dropped),
        cmocka_unit_test(errors_carry_code_detail_and_errno),
        cmocka_unit_test(long_lines_are_cut_and_stay_json),
        cmocka_unit_test(lines_of_many_threads_stay_whole),
        cmocka_unit_test(no_log_and_no_reader_are_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
