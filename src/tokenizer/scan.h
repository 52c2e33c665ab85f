/* SPDX-License-Identifier: Apache-2.0 */
/* scan.h - the pre-tokenisation patterns of known tokenizers, by hand.
 *
 * A scanner cuts text into pieces without gaps, exactly where the tokenizer's
 * regular expression matches, about a hundred times as fast. Scanners see
 * valid UTF-8 only. The patterns stand in scan.c, each beside its scanner. */
#ifndef LOCKSTEP_TOKENIZER_SCAN_H
#define LOCKSTEP_TOKENIZER_SCAN_H

#include <stdbool.h>
#include <stddef.h>

/* End of the piece of text [0, end) that starts at `at` < end. The piece is
 * never empty. What lies beyond `end` is not looked at. */
typedef size_t scan_piece(const unsigned char *text, size_t at, size_t end);

scan_piece scan_gpt2;        /* GPT-2; ByteLevel with use_regex */
scan_piece scan_digits;      /* Digits: runs of numbers, runs of others */
scan_piece scan_each_digit;  /* Digits(individual_digits) */
scan_piece scan_whole;       /* the text is one piece */

/* The scanner that does what this regular expression does (Split, Isolated),
 * or NULL: those of GPT-2, Llama 3 and cl100k, Qwen 2, o200k, Mistral's Tekken
 * and DeepSeek's digits are known, with \r and \n as escapes or as
 * themselves. */
scan_piece *scan_find(const char *pattern);
/* Are all of its pieces matches? Those for numbers also cut what is none. */
bool scan_matches_all(scan_piece *scan);
/* That of a tiktoken file by the name of its encoding, or NULL: r50k_base,
 * cl100k_base, o200k_base, qwen. */
scan_piece *scan_named(const char *name);

#endif
