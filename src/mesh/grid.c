/* SPDX-License-Identifier: Apache-2.0 */
/* grid.c - the numerics grid: the finest cuts of every sum, and the addends in
 * which a rank meets them. */
#include "mesh/grid.h"

#include <limits.h>

bool grid_tensor_fits(int64_t leaves, const struct grid_facts *facts)
{
    const int64_t kv = facts->kv_heads;

    return facts->heads % leaves == 0 && facts->feed_forward % leaves == 0 &&
           (kv % leaves == 0 || kv == 1 ||
            (leaves % kv == 0 && grid_is_power(leaves / kv))) &&
           kv * facts->head_width % leaves == 0;
}

const char *grid_tensor_words(int64_t leaves, const struct grid_facts *facts,
                              char out[GRID_WORDS])
{
    const int64_t kv = facts->kv_heads, keys = kv * facts->head_width;
    const struct { bool cut; int64_t size; const char *words; } all[] = {
        {facts->heads % leaves == 0, facts->heads, "heads"},
        {kv % leaves == 0 || kv == 1 ||
             (leaves % kv == 0 && grid_is_power(leaves / kv)), kv,
         "key-value heads"},
        {keys % leaves == 0 || kv > 1, keys,
         "elements of the key-value heads"},
        {facts->feed_forward % leaves == 0, facts->feed_forward,
         "columns of the feed-forward part"}};
    size_t used = 0;

    out[0] = 0;
    for (int i = 0; i < 4; i++)
        if (!all[i].cut && used < GRID_WORDS)
            used += (size_t)snprintf(out + used, GRID_WORDS - used,
                                     "%s%lld %s", used > 0 ? ", " : "",
                                     (long long)all[i].size, all[i].words);
    if (used == 0) /* it is divided, and there are too many */
        snprintf(out, GRID_WORDS, "%lld heads, %lld key-value heads and a "
                 "feed-forward width of %lld", (long long)facts->heads,
                 (long long)kv, (long long)facts->feed_forward);
    return out;
}

static int tensor_auto(const struct grid_facts *facts)
{
    if (grid_tensor_fits(4, facts)) return 4;
    if (grid_tensor_fits(2, facts)) return 2;
    return grid_tensor_fits(3, facts) ? 3 : 1;
}

bool grid_is_cut(int64_t leaves, int64_t ranks)
{
    return ranks == 1 || (leaves % ranks == 0 && grid_is_power(leaves / ranks));
}

static int data_auto(const struct grid_facts *facts)
{
    const bool large = facts->batch >= GRID_AUTO_LARGE;
    int data = 8;

    while (facts->batch % data != 0) data /= 2;
    while (large && 2 * data <= GRID_LEAVES_MAX &&
           facts->batch % (2 * data) == 0 &&
           facts->batch / (2 * data) * facts->length >= GRID_AUTO_TOKENS)
        data *= 2;
    return data;
}

/* The largest divisor of the batch that `leaves` is not below. */
static int nearest_data(int64_t leaves, int64_t batch, int most)
{
    int64_t near = leaves < batch ? leaves : batch;

    if (near > most) near = most;
    while (near > 1 && batch % near != 0) near--;
    return (int)(near > 1 ? near : 1);
}

static int expert_auto(const struct grid_facts *facts)
{
    int leaves = GRID_AUTO_EXPERTS;

    if (facts->experts == 0) return 1;
    if (facts->groups > 1 && facts->groups <= GRID_LEAVES_MAX &&
        facts->experts % facts->groups == 0)
        return (int)facts->groups;
    while (facts->experts % leaves != 0) leaves /= 2;
    return leaves;
}

static status resolve_expert(struct grid *out, int asked,
                             const struct grid_facts *facts)
{
    const int64_t experts = facts->experts > 0 ? facts->experts : 1;

    out->expert = expert_auto(facts);
    if (asked == 0) return OK;
    if (facts->experts == 0 && asked > 1)
        FAIL(ERR_CONFIG, "numerics.grid_expert: %d leaves, but the model has "
                         "no experts; leave it out", asked);
    if (asked > GRID_LEAVES_MAX || experts % asked != 0)
        FAIL(ERR_CONFIG, "numerics.grid_expert: %d leaves do not divide %lld "
                         "experts of a block, or are more than %d; %d works",
             asked, (long long)facts->experts, GRID_LEAVES_MAX, out->expert);
    out->expert = asked;
    return OK;
}

/* Context chunks are equal, and hold a token of each tensor leaf. */
status grid_check_length(const struct grid *grid, int64_t length)
{
    const int64_t parts = 2 * (int64_t)grid->context;
    const int64_t near = (length + parts / 2) / parts * parts;
    const int64_t least = parts * grid->tensor;

    if (grid->context <= 1) return OK;
    if (length % parts != 0)
        FAIL(ERR_CONFIG, "data.sequence: %lld tokens are not %lld equal chunks "
                         "(numerics.grid_context, twice); %lld are",
             (long long)length, (long long)parts,
             (long long)(near > least ? near : least));
    if (length / parts < grid->tensor)
        FAIL(ERR_CONFIG, "data.sequence: chunks of %lld tokens are shorter "
                         "than the grid's %d tensor leaves; %lld tokens would "
                         "do", (long long)(length / parts), grid->tensor,
             (long long)least);
    return OK;
}

static bool cuts_length(int64_t context, int64_t tensor, int64_t length)
{
    return context == 1 || (length % (2 * context) == 0 &&
                            length / (2 * context) >= tensor);
}

/* Names context leaves that cut the sequence, too. */
static status fail_context(const struct grid *asked, int tensor,
                           const struct grid_facts *facts, int most)
{
    int near = most / tensor;

    if (facts->length > 0)
        while (!cuts_length(near, tensor, facts->length)) near--;
    FAIL(ERR_CONFIG, "numerics.grid_context: %d leaves times %d tensor leaves "
                     "are %d; one sum has at most %d; %d works%s",
         asked->context, tensor, asked->context * tensor, most, near,
         facts->length > 0 ? "" : ", or less");
}

status grid_resolve(struct grid *out, const struct grid *asked,
                    const struct grid_facts *facts)
{
    const int data = facts->fast ? INT_MAX : GRID_DATA_LEAVES_MAX;
    const int most = facts->fast ? INT_MAX : GRID_LEAVES_MAX;
    char words[GRID_WORDS];

    *out = (struct grid){.data = data_auto(facts),
                         .tensor = tensor_auto(facts), .context = 1};
    TRY(resolve_expert(out, asked->expert, facts));
    if (asked->data != 0) {
        if (asked->data > data ||
            facts->batch % asked->data != 0)
            FAIL(ERR_CONFIG,
                 "numerics.grid_data: %d leaves do not divide a batch of %lld "
                 "sequences, or are more than %d; %d works", asked->data,
                 (long long)facts->batch, data,
                 nearest_data(asked->data, facts->batch, data));
        out->data = asked->data;
    }
    if (asked->tensor != 0) {
        if (asked->tensor > most ||
            !grid_tensor_fits(asked->tensor, facts))
            FAIL(ERR_CONFIG,
                 "numerics.grid_tensor: %d leaves do not divide %s; %d does",
                 asked->tensor,
                 grid_tensor_words(asked->tensor, facts, words), out->tensor);
        out->tensor = asked->tensor;
    }
    if (asked->context == 0) return OK;
    if (asked->context > most / out->tensor)
        return fail_context(asked, out->tensor, facts, most);
    out->context = asked->context;
    return OK;
}

double grid_tree(double *leaf, int leaves)
{
    for (int width = 1; width < leaves; width *= 2)
        for (int i = 0; i + width < leaves; i += 2 * width)
            leaf[i] = leaf[i] + leaf[i + width];
    return leaf[0];
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The end of the tree's leaves. */
static int cut_end(const struct cut *cut)
{
    return cut->all_leaves > 0 ? cut->all_leaves : cut->data_leaves;
}

/* Whole leaves from `leaf` on that form one subtree, fit in `sequences`, and
 * are with their context leaves no more than a kernel adds. */
static int subtree(const struct cut *cut, int64_t leaf, int64_t sequences)
{
    const int64_t fit = sequences / cut->sequences_per_leaf;
    const int64_t rest = cut_end(cut) - cut->first_leaf - leaf;
    const int contexts = cut_contexts(cut);
    int leaves = 1;

    leaf += cut->first_leaf; /* nodes are those of the tree of all ranks */
    if (cut->shared || !grid_is_power(contexts)) return 1;
    while (leaves * 2 <= fit && leaf % (leaves * 2) == 0 &&
           leaves * 2 * contexts <= GRID_LEAVES_MAX)
        leaves *= 2;
    /* The last node of the tree has what is left. */
    if (contexts == 1 && leaves < rest && rest <= fit &&
        rest <= GRID_LEAVES_MAX && rest < leaves * 2 &&
        leaf % (leaves * 2) == 0)
        return (int)rest;
    return leaves;
}

/* A part of one context chunk of the sequence that the cursor is in. */
static void addend_cut(const struct cut *cut, int64_t inside,
                       struct addend_cursor *cursor, struct addend *out)
{
    const int parts = cut->context_chunks > 1 ? cut->context_chunks : 1;
    const int64_t length = cut->length / parts;
    const int number = (int)(cursor->token / length);
    const int64_t at = cursor->token % length;

    out->cut = true;
    out->sequences = 1;
    out->first_token = cursor->token;
    out->tokens = least(cut->addend_tokens, length - at);
    out->context = number < parts - 1 - number ? number : parts - 1 - number;
    out->fresh = inside == 0 && at == 0 && out->context == number;
    out->begins = inside == 0 && cursor->token == 0;
    cursor->token += out->tokens;
    out->completes = inside == cut->sequences_per_leaf - 1 &&
                     cursor->token == cut->length;
    if (cursor->token < cut->length) return;
    cursor->token = 0;
    cursor->sequence++;
}

bool addend_next(const struct cut *cut, int64_t micro_batch_index,
                 struct addend_cursor *cursor, struct addend *out)
{
    const int64_t per_leaf = cut->sequences_per_leaf;
    const int64_t at = micro_batch_index * cut->micro_batch + cursor->sequence;
    const int64_t leaf = at / per_leaf, inside = at % per_leaf;
    int64_t left = cut->micro_batch - cursor->sequence;

    if (left == 0) return false;
    if (cut->addend_sequences != 0) left = least(left, cut->addend_sequences);
    *out = (struct addend){.first_sequence = cursor->sequence,
                          .tokens = cut->length, .first_leaf = (int)leaf,
                          .leaves = 1};
    if (cut->addend_tokens != 0 && cut->addend_tokens < cut->length) {
        addend_cut(cut, inside, cursor, out);
        return true;
    }
    if (inside == 0 && left >= per_leaf) {
        out->leaves = subtree(cut, leaf, left);
        out->sequences = out->leaves * per_leaf;
    } else {
        out->sequences = least(left, per_leaf - inside);
    }
    out->begins = out->fresh = inside == 0;
    out->completes = (at + out->sequences) % per_leaf == 0;
    cursor->sequence += out->sequences;
    return true;
}

/* Whether node `b`, right after node `a`, is its sibling in the tree. The last
 * node of a level may have fewer leaves than its sibling. */
static bool siblings(const struct cut *cut, int a_first, int a_leaves,
                     int b_first, int b_leaves)
{
    a_first += cut->first_leaf;
    b_first += cut->first_leaf;
    const bool last = b_first + b_leaves == cut_end(cut);

    if (a_first + a_leaves != b_first || !grid_is_power(a_leaves) ||
        a_first % (2 * a_leaves) != 0)
        return false;
    return a_leaves == b_leaves || (last && b_leaves < a_leaves);
}

void node_begin(const struct node_stack *stack, const struct cut *cut,
                const struct addend *addend, bool takes_left, int *buffer,
                bool *left)
{
    const int top = stack->count - 1;

    CHECK(addend->begins != stack->open);
    *left = false;
    *buffer = stack->open ? top : stack->count;
    if (!takes_left || stack->open || !addend->completes || stack->count == 0)
        return;
    if (siblings(cut, stack->node[top].first, stack->node[top].leaves,
                 addend->first_leaf, addend->leaves)) {
        *left = true;
        *buffer = top;
    }
}

void node_end(struct node_stack *stack, const struct addend *addend, bool left)
{
    if (left) {
        stack->node[stack->count - 1].leaves += addend->leaves;
    } else if (!stack->open) {
        CHECK(stack->count < NODES_MAX);
        stack->node[stack->count].first = addend->first_leaf;
        stack->node[stack->count].leaves = addend->leaves;
        stack->count++;
    }
    stack->open = !addend->completes;
}

bool node_merge(struct node_stack *stack, const struct cut *cut, int *left,
                int *right)
{
    const int top = stack->count - 1;

    if (stack->open || top < 1) return false;
    if (!siblings(cut, stack->node[top - 1].first, stack->node[top - 1].leaves,
                  stack->node[top].first, stack->node[top].leaves))
        return false;
    *left = top - 1;
    *right = top;
    stack->node[top - 1].leaves += stack->node[top].leaves;
    stack->count--;
    return true;
}

void cut_roots(const struct cut *cut, struct node_stack *roots)
{
    int left, right;

    *roots = (struct node_stack){0};
    for (int i = 0; i < cut->data_leaves; i++) {
        const struct addend leaf = {
            .first_leaf = i, .leaves = 1, .begins = true, .completes = true};

        node_end(roots, &leaf, false);
        while (node_merge(roots, cut, &left, &right)) continue;
    }
}

/* A step's nodes need these. */
struct node_needs { int buffers; int64_t adds; };

static struct node_needs node_needs(const struct cut *cut, bool takes_left)
{
    struct node_stack stack = {0};
    struct node_needs needs = {0, 0};

    for (int64_t i = 0; i < cut->micro_batches; i++) {
        struct addend_cursor cursor = {0};
        struct addend addend;
        int buffer, right;
        bool left;

        while (addend_next(cut, i, &cursor, &addend)) {
            node_begin(&stack, cut, &addend, takes_left, &buffer, &left);
            if (buffer + 1 > needs.buffers) needs.buffers = buffer + 1;
            node_end(&stack, &addend, left);
            while (node_merge(&stack, cut, &buffer, &right)) needs.adds++;
        }
    }
    return needs;
}

int node_limit(const struct cut *cut, bool takes_left)
{
    return node_needs(cut, takes_left).buffers;
}

/* node_adds where leaves are a power of two and micro-batches are whole
 * subtrees of them, or parts of one: all nodes meet in one, and every second
 * begins with the one before it. -1: elsewhere. */
static int64_t even_adds(const struct cut *cut, bool takes_left)
{
    const int64_t each = cut->sequences_per_leaf;
    const bool ends = cut->micro_batch % each == 0; /* leaves, each of them */
    int64_t whole = ends ? cut->micro_batch / each : 1;

    if (cut->all_leaves > 0 || cut->addend_sequences > 0 ||
        cut->addend_tokens > 0 || (!cut->shared && cut_contexts(cut) > 1) ||
        !grid_is_power(cut->data_leaves) || !grid_is_power(whole) ||
        (!ends && each % cut->micro_batch != 0) ||
        cut->micro_batch * cut->micro_batches != each * cut->data_leaves)
        return -1;
    if (cut->shared) whole = 1;
    while (whole > GRID_LEAVES_MAX) whole /= 2;
    const int64_t nodes = cut->data_leaves / whole;

    return nodes == 1 ? 0 : takes_left && ends ? nodes / 2 - 1 : nodes - 1;
}

int64_t node_adds(const struct cut *cut, bool takes_left)
{
    const int64_t adds = even_adds(cut, takes_left);

    return adds >= 0 ? adds : node_needs(cut, takes_left).adds;
}
