/* SPDX-License-Identifier: Apache-2.0 */
/* pack.c - which fragments of documents share a sample, by best fit.
 *
 * Open samples stand in lists by the room that they have left; a bit for each
 * room that has a list, and a bit for each word of those, find the smallest
 * room that is large enough in a few steps. */
#include "data/pack.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

enum { WINDOW = 1 << 16, WORD = 64, NONE = -1 };

struct packing {
    struct pack *pack;
    int64_t sequence;
    struct pack_fragment *rest;   /* [WINDOW] shorter than a sample */
    int32_t *sample_of;        /* [WINDOW] of a rest, in the window */
    int32_t *next;             /* [WINDOW] sample with the same room */
    int64_t *room;             /* [WINDOW] left in a sample */
    int64_t *counts;           /* [WINDOW] fragments of a sample */
    int32_t *head;             /* [sequence + 1] by room */
    uint64_t *bits, *words;    /* rooms that have a list; words not 0 */
    int rests, samples;
};

/* ---- rooms ---- */

static void list_add(struct packing *p, int32_t sample)
{
    const int64_t room = p->room[sample];

    p->next[sample] = p->head[room];
    p->head[room] = sample;
    p->bits[room / WORD] |= UINT64_C(1) << room % WORD;
    p->words[room / WORD / WORD] |= UINT64_C(1) << room / WORD % WORD;
}

/* Takes the first sample of the list. */
static int32_t list_take(struct packing *p, int64_t room)
{
    const int32_t sample = p->head[room];

    p->head[room] = p->next[sample];
    if (p->head[room] == NONE) {
        p->bits[room / WORD] &= ~(UINT64_C(1) << room % WORD);
        if (p->bits[room / WORD] == 0)
            p->words[room / WORD / WORD] &=
                ~(UINT64_C(1) << room / WORD % WORD);
    }
    return sample;
}

/* Smallest index >= at of a bit that is set, or `count`. */
static int64_t next_bit(const uint64_t *bits, int64_t at, int64_t count)
{
    int64_t word = at / WORD;
    uint64_t left;

    if (at >= count) return count;
    left = bits[word] >> at % WORD;
    if (left != 0) return at + __builtin_ctzll(left);
    for (word++; word * WORD < count; word++)
        if (bits[word] != 0)
            return word * WORD + __builtin_ctzll(bits[word]);
    return count;
}

/* The smallest room >= least that some open sample has, or NONE. */
static int64_t room_for(const struct packing *p, int64_t least)
{
    const int64_t words = p->sequence / WORD + 1;
    const uint64_t here = p->bits[least / WORD] >> least % WORD;
    int64_t word;

    if (here != 0) return least + __builtin_ctzll(here);
    word = next_bit(p->words, least / WORD + 1, words);
    if (word == words) return NONE;
    return word * WORD + __builtin_ctzll(p->bits[word]);
}

/* ---- the result ---- */

static status grow(struct pack *pack, int64_t fragments, int64_t samples)
{
    void *memory;

    if (pack->fragment_count + fragments > pack->fragment_room) {
        const int64_t room = 2 * (pack->fragment_count + fragments) + 1024;

        memory = pack->fragments;
        TRY(memory_grow(&memory, (size_t)room, sizeof *pack->fragments));
        pack->fragments = memory;
        pack->fragment_room = room;
    }
    if (pack->samples + samples + 1 > pack->sample_room) {
        const int64_t room = 2 * (pack->samples + samples + 1) + 1024;

        memory = pack->first;
        TRY(memory_grow(&memory, (size_t)room, sizeof *pack->first));
        pack->first = memory;
        pack->sample_room = room;
    }
    return OK;
}

static void add_whole(struct packing *p, int64_t at)
{
    struct pack *pack = p->pack;

    pack->fragments[pack->fragment_count] =
        (struct pack_fragment){at, p->sequence};
    pack->first[pack->samples++] = pack->fragment_count++;
}

/* ---- a window ---- */

static int by_length(const void *a, const void *b)
{
    const struct pack_fragment *x = a, *y = b;

    if (x->count != y->count) return x->count < y->count ? 1 : -1;
    return x->at < y->at ? -1 : x->at > y->at;
}

static void place_rests(struct packing *p)
{
    qsort(p->rest, (size_t)p->rests, sizeof *p->rest, by_length);
    p->samples = 0;
    for (int i = 0; i < p->rests; i++) {
        const int64_t room = room_for(p, p->rest[i].count);
        int32_t sample;

        if (room != NONE) {
            sample = list_take(p, room);
        } else {
            sample = p->samples++;
            p->room[sample] = p->sequence;
            p->counts[sample] = 0;
        }
        p->sample_of[i] = sample;
        p->counts[sample]++;
        p->room[sample] -= p->rest[i].count;
        if (p->room[sample] > 0) list_add(p, sample);
    }
}

/* The window's rests, by sample; the lists are empty again afterwards. */
static void emit_rests(struct packing *p)
{
    struct pack *pack = p->pack;
    int64_t at = pack->fragment_count;

    for (int32_t s = 0; s < p->samples; s++) {
        const int64_t count = p->counts[s];

        pack->first[pack->samples++] = at;
        p->counts[s] = at; /* from now on: place of its next fragment */
        at += count;
        pack->padding += p->room[s];
        p->head[p->room[s]] = NONE;
        p->bits[p->room[s] / WORD] = 0;
        p->words[p->room[s] / WORD / WORD] = 0;
    }
    for (int i = 0; i < p->rests; i++)
        pack->fragments[p->counts[p->sample_of[i]]++] = p->rest[i];
    pack->fragment_count = at;
    p->rests = 0;
}

static status pack_window(struct packing *p, const struct pack_source *source,
                          int64_t from, int64_t to)
{
    for (int64_t i = from; i < to; i++) {
        const int64_t end = source->start(source->context, i + 1);
        int64_t at = source->start(source->context, i);
        const int64_t whole = (end - at) / p->sequence;

        TRY(grow(p->pack, whole, whole));
        for (; end - at >= p->sequence; at += p->sequence) add_whole(p, at);
        if (at < end)
            p->rest[p->rests++] = (struct pack_fragment){at, end - at};
    }
    place_rests(p);
    TRY(grow(p->pack, p->rests, p->samples));
    emit_rests(p);
    return OK;
}

static status take_all(struct packing *p, struct arena *arena)
{
    const size_t rooms = (size_t)p->sequence + 1;
    const size_t bits = rooms / WORD + 1;
    void *memory;

    TRY(arena_take_array(arena, WINDOW, sizeof *p->rest, &memory));
    p->rest = memory;
    TRY(arena_take_array(arena, WINDOW, sizeof *p->sample_of, &memory));
    p->sample_of = memory;
    TRY(arena_take_array(arena, WINDOW, sizeof *p->next, &memory));
    p->next = memory;
    TRY(arena_take_array(arena, WINDOW, sizeof *p->room, &memory));
    p->room = memory;
    TRY(arena_take_array(arena, WINDOW, sizeof *p->counts, &memory));
    p->counts = memory;
    TRY(arena_take_array(arena, rooms, sizeof *p->head, &memory));
    p->head = memory;
    for (size_t i = 0; i < rooms; i++) p->head[i] = NONE;
    TRY(arena_take_array(arena, bits, sizeof *p->bits, &memory));
    p->bits = memory;
    TRY(arena_take_array(arena, bits / WORD + 1, sizeof *p->words, &memory));
    p->words = memory;
    return OK;
}

/* Passes on the samples of a window; the totals stay. */
static status pass_on(struct packing *p, const struct pack_source *source,
                      struct pack *total)
{
    struct pack *window = p->pack;

    TRY(source->take(source->sink, window, total->fragment_count));
    total->fragment_count += window->fragment_count;
    total->samples += window->samples;
    window->fragment_count = window->samples = 0;
    return OK;
}

static status pack_windows(struct packing *p, const struct pack_source *source,
                           struct pack *total)
{
    const int64_t documents = source->documents;

    for (int64_t from = 0; from < documents; from += WINDOW) {
        const int64_t left = documents - from;

        TRY(pack_window(p, source, from,
                        from + (left < WINDOW ? left : WINDOW)));
        if (source->take != NULL) TRY(pass_on(p, source, total));
        if (source->progress != NULL)
            source->progress(source->argument, (double)from,
                             (double)documents);
    }
    return OK;
}

status pack_build(struct pack *pack, const struct pack_source *source)
{
    struct packing p = {.pack = pack, .sequence = source->sequence};
    struct pack total = {0};
    struct arena arena;
    status result;

    *pack = (struct pack){.sequence = source->sequence};
    arena_init(&arena, "packing", 0);
    TRY_GOTO(done, result, take_all(&p, &arena));
    TRY_GOTO(done, result, pack_windows(&p, source, &total));
    TRY_GOTO(done, result, grow(pack, 0, 0));
    if (source->take == NULL) {
        pack->first[pack->samples] = pack->fragment_count;
    } else {
        pack->fragment_count = total.fragment_count;
        pack->samples = total.samples;
    }
done:
    arena_free(&arena);
    return result;
}

void pack_free(struct pack *pack)
{
    if (pack->image == NULL) {
        memory_free(pack->fragments);
        memory_free(pack->first);
    }
    file_map_close(&pack->map);
    *pack = (struct pack){0};
}
