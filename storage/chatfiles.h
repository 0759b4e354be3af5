/* What the two halves of chatfile.h share. */
#ifndef STORAGE_CHATFILES_H
#define STORAGE_CHATFILES_H

#include <sys/stat.h>

#include "leasehold/chatfile.h"

int chatfile_fail(struct err *e, int sys, const char *what); /* a full disk has its own code */
void file_gone_of(const struct stat *st, struct file_gone *ret);
int chatfile_stamp(int fd, struct file_stamp *ret, struct err *e) MUST_CHECK;

#endif
