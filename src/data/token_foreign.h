/* SPDX-License-Identifier: Apache-2.0 */
/* token_foreign.h - token files of other projects, mapped and read in place.
 *
 *   .idx, .bin   Megatron-LM: u8 "MMIDIDX\0\0", u64 1, u8 type, u64 sequences,
 *                u64 boundaries, then (unaligned) i32 lengths, i64 offsets in
 *                the .bin, i64 boundaries of documents as numbers of sequences
 *   .bin         llm.c: 256 x i32, magic 20240520 version 1 (u16) or 20240801
 *                version 7 (u32), count; documents begin with 50256 or 128000
 *   .ds          datatrove and nanotron: tokens; .ds.index has the u64 end of
 *                each document; .ds.metadata, if it is there, "TOKENIZER|
 *                BYTES" and the number of tokens, which are compared
 *   .npy         NumPy, one dimension of integers, versions 1 to 3
 *   .u16, .u32   tokens and nothing else (nanoGPT's train.bin, renamed)
 *
 * All little-endian. */
#ifndef LOCKSTEP_DATA_TOKEN_FOREIGN_H
#define LOCKSTEP_DATA_TOKEN_FOREIGN_H

#include "data/token_file.h"

bool token_foreign_is(const char *path, bool named);
/* Into a zeroed file. */
status token_foreign_open(struct token_file *file, const char *path);
/* Like token_foreign_open, for images in memory, which must outlive it: image
 * and table of the file, its layout is set. */
status token_foreign_parse(struct token_file *file);
/* First token of a document; may be wrong where the table is. */
uint64_t token_foreign_start(const struct token_file *file, int64_t index);
/* A table of starts that was kept: its image, which must outlive the file.
 * False: not whole, or not of this file and end token. */
bool token_starts_parse(struct token_file *file, int32_t end,
                        const unsigned char *bytes, size_t length);
/* A file that holds one, whatever it is of; *documents, *tokens of that.
 * ERR_FORMAT: it is not whole. */
status token_starts_verify(const char *path, int64_t *documents,
                           int64_t *tokens);
/* Tables: what a pass over them can find. */
status token_foreign_verify(const struct token_file *file);

#endif
