/* SPDX-License-Identifier: Apache-2.0 */
/* pack_file.h - which pieces share a sample, kept in a file that is mapped.
 *
 *    offset  bytes
 *         0      8   "LSPACK01"                  all as this machine has them
 *         8     64   what it was made of: struct pack_facts
 *        72     24   samples s, pieces p, padding
 *        96      4   CRC-32C of bytes 0 to 95
 *       100     28   zero
 *       128   16*p   pieces: first token, tokens
 *       ... 8*(s+1)  first piece of each sample; then p
 *       ...    4*b   CRC-32C of each 4 KiB of what follows the header
 *
 * Opening reads the header; each sample checks the blocks that it touches. The
 * file is written a window of documents at a time, beside and then renamed:
 * two that make it at once write the same. */
#ifndef LOCKSTEP_DATA_PACK_FILE_H
#define LOCKSTEP_DATA_PACK_FILE_H

#include <stdbool.h>
#include "data/pack.h"

/* Two indices with the same facts are the same. */
struct pack_facts {
    uint64_t set;       /* token_set's key: which documents there are */
    uint64_t documents, tokens; /* of the share */
    uint64_t sequence;
    uint64_t seed, share, side; /* of the split; side: enum loader_share */
    uint64_t zero;
};

/* Maps the index of these facts in the directory `cache`, or makes it there.
 * progress: of documents; may be NULL. *kept false: there is no place for it,
 * and nothing was made. */
status pack_file_open(struct pack *pack, const struct pack_source *source,
                      const struct pack_facts *facts, const char *cache,
                      bool *kept);
/* The image of a file, which must outlive the pack. False: not whole, or not
 * of these facts. */
bool pack_file_parse(struct pack *pack, const struct pack_facts *facts,
                     const unsigned char *bytes, size_t length);
/* Before the pieces of a sample are used: their checksums and bounds. */
status pack_file_check(const struct pack *pack, int64_t sample);

#endif
