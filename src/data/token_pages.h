/* SPDX-License-Identifier: Apache-2.0 */
/* token_pages.h - checksums of the pages of a token file, so that a sample of
 * them shows bits that flipped under a seal that holds.
 *
 * A page is 16 MiB of the file behind its header. Who reads or writes a file
 * from end to end keeps them in a file beside the seal (.pages): a line as the
 * seal's, then 4 bytes a page. Without it nothing is compared. */
#ifndef LOCKSTEP_DATA_TOKEN_PAGES_H
#define LOCKSTEP_DATA_TOKEN_PAGES_H

#include "data/token_file.h"

enum { TOKEN_PAGE_BYTES = 16 << 20, TOKEN_PAGES_AT_ONCE = 4 };

/* Bytes in order; total: the checksum of them all, after token_pages_end. */
status token_pages_feed(struct token_pages *pages, const void *bytes,
                        size_t length);
status token_pages_end(struct token_pages *pages);
void token_pages_free(struct token_pages *pages);

/* For a file that was sealed; what cannot be kept costs the check. */
status token_pages_keep(const struct token_file *file, const char *cache);
/* Opens the pages of the file that has this checksum; none: file->pages is
 * empty. */
void token_pages_find(struct token_file *file, const char *cache);
/* Up to TOKEN_PAGES_AT_ONCE pages, drawn by `draw`; all, when they are not
 * more. ERR_FORMAT: one is not what it was. */
status token_pages_check(const struct token_file *file, uint64_t draw);
/* Checks so many pages of all files. */
status token_pages_check_all(const struct token_file *files, int count,
                             uint64_t draw);

#endif
