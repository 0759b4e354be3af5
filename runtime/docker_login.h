/* What the engine is told for a pull from a registry that wants to know who asks. Any thread. */
#ifndef RUNTIME_DOCKER_LOGIN_H
#define RUNTIME_DOCKER_LOGIN_H

#include "leasehold/config.h"

#define LOGIN_HOST_MAX 256

/* A whole header line with the credentials. */
struct docker_login {
    char header[32 * 1024];
};

/* Of which registry is this image: "docker.io" where its name names none, "" of one that can be none. */
void docker_login_host(const char *image, char ret[static LOGIN_HOST_MAX]);

/* Reads the password anew each time, so that it may be changed under us. Without an entry for the
 * image's registry the header is "". It is to be wiped after its use. */
int docker_login_make(const struct config_docker *cfg, const char *image, struct docker_login *ret,
                      struct err *e) MUST_CHECK;

/* Do these words of an engine say that the registry did not let us in? */
bool docker_login_is_refusal(const char *words);

#endif
