/* SPDX-License-Identifier: Apache-2.0 */
/* s3_curl.c - finds libcurl. */
#include "checkpoint/s3_curl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>

struct curl curl;
static bool has_curl;
static pthread_once_t curl_sought = PTHREAD_ONCE_INIT;

static void find_curl(void)
{
    static const char *const names[] = {"libcurl.so.4",
                                        "libcurl-gnutls.so.4"};
    void *library = NULL;

    for (int i = 0; i < 2 && library == NULL; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return;
    *(void **)&curl.begin = dlsym(library, "curl_global_init");
    *(void **)&curl.make = dlsym(library, "curl_easy_init");
    *(void **)&curl.set = dlsym(library, "curl_easy_setopt");
    *(void **)&curl.perform = dlsym(library, "curl_easy_perform");
    *(void **)&curl.reset = dlsym(library, "curl_easy_reset");
    *(void **)&curl.end = dlsym(library, "curl_easy_cleanup");
    *(void **)&curl.append = dlsym(library, "curl_slist_append");
    *(void **)&curl.free_list = dlsym(library, "curl_slist_free_all");
    *(void **)&curl.error = dlsym(library, "curl_easy_strerror");
    *(void **)&curl.info = dlsym(library, "curl_version_info");
    has_curl = curl.begin != NULL && curl.make != NULL && curl.set != NULL &&
               curl.perform != NULL && curl.reset != NULL &&
               curl.end != NULL && curl.append != NULL &&
               curl.free_list != NULL && curl.error != NULL &&
               curl.info != NULL &&
               curl.begin(3) == 0;
}

bool curl_find(void)
{
    pthread_once(&curl_sought, find_curl);
    return has_curl;
}

bool curl_signs(void)
{
    void *handle = curl_find() ? curl.make() : NULL;
    const bool signs =
        handle != NULL &&
        curl.set(handle, OPT_AWS_SIGV4, "aws:amz:us-east-1:s3") == 0;

    if (handle != NULL) curl.end(handle);
    return signs;
}

const char *curl_version_text(void)
{
    enum { FIRST_AGE = 0 };

    return curl_find() ? curl.info(FIRST_AGE)->version : NULL;
}
