/* SPDX-License-Identifier: Apache-2.0 */
/* about.h - facts about this build that version, doctor and reports show. */
#ifndef LOCKSTEP_CLI_ABOUT_H
#define LOCKSTEP_CLI_ABOUT_H

enum { ABOUT_LIBRARIES = 3, ABOUT_VERSION_BYTES = 64 };

struct about_library {
    const char *name;
    char version[ABOUT_VERSION_BYTES]; /* of the library that is loaded */
};

/* libyaml, pcre2, utf8proc. */
void about_libraries(struct about_library out[ABOUT_LIBRARIES]);
/* "plain avx2 avx512": instruction sets the kernels were compiled for. */
const char *about_isas(void);

#endif
