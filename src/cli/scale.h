/* SPDX-License-Identifier: Apache-2.0 */
/* scale.h - --scale 1/K: a model of any size, small enough for this machine.
 *
 * Width, feed-forward width, vocabulary, window, sequence and batch are divided
 * by K, widths in steps of 64; there are two blocks (six where every sixth
 * differs), one head for each 64 elements of the width, as many key-value
 * heads or one. The mesh is what --ranks gives data parallelism. */
#ifndef LOCKSTEP_CLI_SCALE_H
#define LOCKSTEP_CLI_SCALE_H

#include "base/options.h"

/* ERR_USAGE: not 1/K. */
status scale_options(struct options_set *set, const char *scale);

#endif
