/* SPDX-License-Identifier: Apache-2.0 */
/* pack_file.h - which fragments share a sample, kept in a file that is mapped.
 *
 *    offset  bytes
 *         0      8   "LSPACK01"                  all as this machine has them
 *         8     64   what it was made of: struct pack_facts
 *        72     24   samples s, fragments p, padding
 *        96      4   CRC-32C of bytes 0 to 95
 *       100     28   zero
 *       128   16*p   fragments: first token, tokens
 *       ... 8*(s+1)  first fragment of each sample; then p
 *       ...    4*b   CRC-32C of each 4 KiB of what follows the header
 *
 * Opening reads the header; each sample checks the blocks that it touches. What
 * is damaged is named in a warning and made again, with the same bits: they
 * follow from the facts. The file is written a window of documents at a time,
 * beside and then renamed: two that make it at once write the same. */
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

/* Where the index of these facts lies in the directory `cache`. */
status pack_file_path(const struct pack_facts *facts, const char *cache,
                      char out[PATH_BYTES]);
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
/* Before the fragments of a sample are used: their checksums and bounds. */
status pack_file_check(const struct pack *pack, int64_t sample);
/* After that failed: maps what another rank has made again meanwhile, or makes
 * it again, where there is no place in memory. The sentence of the failure
 * becomes a warning. ERR_FORMAT: there are other samples than before. */
status pack_file_renew(struct pack *pack, const struct pack_source *source,
                       const struct pack_facts *facts, const char *cache,
                       int64_t sample);
/* All of a file, whose facts are found in it. ERR_FORMAT. */
status pack_file_verify(const char *path, struct pack_facts *facts);

#endif
