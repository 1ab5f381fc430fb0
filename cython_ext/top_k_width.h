/* The part of top_k.h that depends on the width of elements: I, a signed integer; LOWEST, its minimum; NAMED(name). */

#define TOP_K_ROW(kind, ORDER)                                                                                        \
    /* Whether any of n elements is above the limit. */                                                               \
    static inline I NAMED(top_k_above_##kind)(const I *x, int n, I limit) {                                           \
        I above = 0;                                                                                                  \
        for (int j = 0; j < n; j++) above |= -(I)(ORDER(x[j]) > limit);                                               \
        return above;                                                                                                 \
    }                                                                                                                 \
                                                                                                                      \
    /* Where the first block from i on begins that has an element above the limit, or is not whole. */                \
    static int64_t NAMED(top_k_skip_##kind)(const I *x, int64_t i, int64_t n, I limit) {                              \
        while (i + TOP_K_BLOCK <= n && !NAMED(top_k_above_##kind)(x + i, TOP_K_BLOCK, limit)) i += TOP_K_BLOCK;       \
        return i;                                                                                                     \
    }                                                                                                                 \
                                                                                                                      \
    /* For a small k: each element goes to its place among the k largest so far. */                                   \
    static void NAMED(top_k_few_##kind)(const I *x, int64_t n, int64_t k, top_k_entry *held) {                        \
        int64_t count = 0, i = 0;                                                                                     \
        for (; count < k; i++) {                                                                                      \
            top_k_entry e = {ORDER(x[i]), i};                                                                         \
            top_k_insert(held, count++, e);                                                                           \
        }                                                                                                             \
        while (i < n) {                                                                                               \
            i = NAMED(top_k_skip_##kind)(x, i, n, (I)held[k - 1].key);                                                \
            for (int64_t end = i + TOP_K_BLOCK < n ? i + TOP_K_BLOCK : n; i < end;) {                                 \
                int seldom = i > TOP_K_PART * k;                                                                      \
                int64_t stop = seldom && i + TOP_K_PART < end ? i + TOP_K_PART : end;                                 \
                if (seldom && !NAMED(top_k_above_##kind)(x + i, (int)(stop - i), (I)held[k - 1].key)) i = stop;       \
                for (; i < stop; i++) {                                                                               \
                    top_k_entry e = {ORDER(x[i]), i};                                                                 \
                    if (e.key > held[k - 1].key) top_k_insert(held, k - 1, e);                                        \
                }                                                                                                     \
            }                                                                                                         \
        }                                                                                                             \
    }                                                                                                                 \
                                                                                                                      \
    static void NAMED(top_k_many_##kind)(const I *x, int64_t n, int64_t k, top_k_entry *held, int64_t capacity,       \
                                         uint32_t *random) {                                                          \
        int64_t count = 0, i = 0;                                                                                     \
        int limited = 0;                                                                                              \
        I limit = 0;                                                                                                  \
        while (i < n) {                                                                                               \
            if (limited) i = NAMED(top_k_skip_##kind)(x, i, n, limit);                                                \
            for (int64_t end = i + TOP_K_BLOCK < n ? i + TOP_K_BLOCK : n; i < end;) {                                 \
                int64_t stop = i + TOP_K_PART < end ? i + TOP_K_PART : end;                                           \
                if (limited && !NAMED(top_k_above_##kind)(x + i, (int)(stop - i), limit)) i = stop;                   \
                for (; i < stop; i++) {                                                                               \
                    I key = ORDER(x[i]);                                                                              \
                    top_k_entry e = {key, i};                                                                         \
                    held[count] = e;                                                                                  \
                    count += !limited || key > limit;                                                                 \
                }                                                                                                     \
            }                                                                                                         \
            if (count > capacity - TOP_K_BLOCK - 1 && count > k) {                                                    \
                top_k_select(held, count, k, random);                                                                 \
                count = k;                                                                                            \
                limited = 1;                                                                                          \
                limit = (I)held[0].key;                                                                               \
                for (int64_t j = 1; j < k; j++) limit = held[j].key < limit ? (I)held[j].key : limit;                 \
            }                                                                                                         \
        }                                                                                                             \
        top_k_select(held, count, k, random);                                                                         \
        top_k_sort(held, k, random);                                                                                  \
    }                                                                                                                 \
                                                                                                                      \
    static void NAMED(top_k_row_##kind)(const I *x, int64_t n, int64_t k, top_k_entry *held, int64_t capacity,        \
                                        uint32_t *random) {                                                           \
        if (k <= TOP_K_FEW) NAMED(top_k_few_##kind)(x, n, k, held);                                                   \
        else NAMED(top_k_many_##kind)(x, n, k, held, capacity, random);                                               \
    }

TOP_K_ROW(integer, TOP_K_INTEGER)
TOP_K_ROW(unsigned, TOP_K_UNSIGNED)
TOP_K_ROW(float, TOP_K_FLOAT)

static void NAMED(top_k_rows)(int kind, const void *operand, void *values, int32_t *places, int64_t first, int64_t last,
                              int64_t n, int64_t behind, int64_t k, top_k_entry *held, int64_t capacity, void *line) {
    uint32_t random = 1;
    for (int64_t at = first; at < last; at++) {
        const I *x = (const I *)operand + at / behind * n * behind + at % behind;
        if (behind > 1) {
            for (int64_t i = 0; i < n; i++) ((I *)line)[i] = x[i * behind];
            x = line;
        }
        if (kind == 0) NAMED(top_k_row_integer)(x, n, k, held, capacity, &random);
        else if (kind == 1) NAMED(top_k_row_unsigned)(x, n, k, held, capacity, &random);
        else NAMED(top_k_row_float)(x, n, k, held, capacity, &random);
        int64_t begin = at / behind * k * behind + at % behind;
        for (int64_t i = 0; i < k; i++) {
            ((I *)values)[begin + i * behind] = x[held[i].place];
            places[begin + i * behind] = (int32_t)held[i].place;
        }
    }
}

#undef TOP_K_ROW
#undef I
#undef LOWEST
#undef NAMED
