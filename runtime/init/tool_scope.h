/* A tool has the uid of its minder and of all other tools. Where the kernel has the means (Landlock, Linux
 * 6.12), a tool and what it starts send signals to each other alone: by no way, as it is the kernel's check
 * of all of them. Where it has not, leasetools clears away what a minder that was killed leaves. */
#ifndef INIT_TOOL_SCOPE_H
#define INIT_TOOL_SCOPE_H

/* Of this process and its descendants, for good; wants PR_SET_NO_NEW_PRIVS. */
void tool_scope_enter(void);

#endif
