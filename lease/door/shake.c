#include "shake.h"

#include <openssl/evp.h>
#include <openssl/sha.h>
#include <string.h>

#define GUID "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

void shake_accept(const char key[static SHAKE_KEY_TEXT], char ret[static SHAKE_ACCEPT_TEXT + 1])
{
    unsigned char text[SHAKE_KEY_TEXT + sizeof(GUID)], sha[SHA_DIGEST_LENGTH];

    memcpy(text, key, SHAKE_KEY_TEXT);
    memcpy(text + SHAKE_KEY_TEXT, GUID, sizeof(GUID));
    SHA1(text, sizeof(text) - 1, sha);
    EVP_EncodeBlock((unsigned char *)ret, sha, sizeof(sha));
}
