/* SPDX-License-Identifier: Apache-2.0 */
/* word_cache.c - ids of words met before: the pool. */
#include "tokenizer/word_cache.h"

#include <pthread.h>
#include "base/arena.h"

struct word_caches {
    pthread_mutex_t lock;
    struct word_cache *idle;
};

status word_caches_build(struct word_caches **out)
{
    void *memory;

    TRY(memory_take(1, sizeof **out, &memory));
    *out = memory;
    pthread_mutex_init(&(*out)->lock, NULL);
    return OK;
}

static void cache_free(struct word_cache *cache)
{
    memory_free(cache->entries);
    memory_free(cache->symbols);
    memory_free(cache->heap);
    unigram_nodes_free(&cache->nodes);
    memory_free(cache);
}

void word_caches_free(struct word_caches *caches)
{
    if (caches == NULL) return;
    while (caches->idle != NULL) {
        struct word_cache *cache = caches->idle;

        caches->idle = cache->next;
        cache_free(cache);
    }
    pthread_mutex_destroy(&caches->lock);
    memory_free(caches);
}

static status cache_build(struct word_cache **out)
{
    struct word_cache *cache;
    void *memory;
    status result;

    TRY(memory_take(1, sizeof *cache, &memory));
    cache = memory;
    memory = NULL;
    result = memory_take(CACHE_PLACES, sizeof *cache->entries, &memory);
    cache->entries = memory;
    if (result != OK) {
        cache_free(cache);
        TRY(result);
    }
    *out = cache;
    return OK;
}

status word_cache_borrow(struct word_caches *caches, struct word_cache **out)
{
    pthread_mutex_lock(&caches->lock);
    *out = caches->idle;
    if (*out != NULL) caches->idle = (*out)->next;
    pthread_mutex_unlock(&caches->lock);
    if (*out == NULL) TRY(cache_build(out));
    return OK;
}

void word_cache_return(struct word_caches *caches, struct word_cache *cache)
{
    pthread_mutex_lock(&caches->lock);
    cache->next = caches->idle;
    caches->idle = cache;
    pthread_mutex_unlock(&caches->lock);
}
