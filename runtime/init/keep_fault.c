#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "keep.h"

/* The text becomes one line of keep.state, and of an answer: plain ASCII. */
static void make_one_line(struct fault *f)
{
    for (char *p = f->text; *p != '\0'; p++)
        if ((unsigned char)*p < ' ' || (unsigned char)*p >= 0x7f)
            *p = '?';
}

int fault_set(struct fault *f, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(f->text, sizeof(f->text), fmt, ap);
    va_end(ap);
    make_one_line(f);
    return -1;
}

int fault_sys(struct fault *f, const char *fmt, ...)
{
    int why = errno;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(f->text, sizeof(f->text), fmt, ap);
    va_end(ap);
    size_t len = strlen(f->text);
    snprintf(f->text + len, sizeof(f->text) - len, ": %s", strerror(why));
    make_one_line(f);
    return -1;
}
