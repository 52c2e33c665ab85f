/* SPDX-License-Identifier: Apache-2.0 */
/* format.c - number formats of 16 bits and fewer. */
#include "tensor/format.h"

const struct format number_formats[FORMAT_COUNT] = {
    [FORMAT_BF16] = {"bf16", 16, 7, -126, 0x7F7F, 0x1.fep127f, SPECIAL_IEEE,
                     false},
    [FORMAT_E4M3] = {"e4m3", 8, 3, -6, 0x7E, 448, SPECIAL_NAN, false},
    [FORMAT_E5M2] = {"e5m2", 8, 2, -14, 0x7B, 57344, SPECIAL_IEEE, false},
    [FORMAT_E4M3B11] = {"e4m3b11", 8, 3, -10, 0x7F, 30, SPECIAL_MINUS, false},
    [FORMAT_E5M6] = {"e5m6", 12, 6, -14, 0x7BF, 65024, SPECIAL_IEEE, false},
    [FORMAT_E2M1] = {"e2m1", 4, 1, 0, 7, 6, SPECIAL_NONE, false},
    [FORMAT_E3M0] = {"e3m0", 4, 0, -2, 7, 16, SPECIAL_NONE, false},
    [FORMAT_INT8] = {"int8", 8, 7, 7, 127, 127, SPECIAL_NONE, true},
    [FORMAT_TERNARY] = {"ternary", 2, 0, 0, 1, 1, SPECIAL_NONE, true},
    [FORMAT_E8M0] = {"e8m0", 8, 0, -127, 254, 0x1p127f, SPECIAL_NONE, false}};
