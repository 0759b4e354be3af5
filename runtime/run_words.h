/* Small programs that do one thing and say in a line how it went. */
#ifndef RUNTIME_RUN_WORDS_H
#define RUNTIME_RUN_WORDS_H

#include <stdbool.h>
#include <stddef.h>

#include "leasehold/err.h"

/* Runs the program to its end, 10 s at most, and keeps the first line that it says (on stderr; stdout_too:
 * or there). Its exit status; -1: it did not run, or was killed. */
int run_words(const char *const *argv, const char *program, bool stdout_too, char *ret, size_t size,
              struct err *e) MUST_CHECK;

#endif
