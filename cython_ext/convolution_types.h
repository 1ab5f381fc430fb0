/* The part of convolution.h that depends on the type of elements: T, NAMED(function), and GEMM or DIRECT. */

#ifdef GEMM

/* Elements of lhs for columns [j0, j0 + columns) and depth [k0, k0 + depth), laid out along `inner`, one of the two. */
static void NAMED(pack)(const conv_shape *s, const T *lhs, T *panel, int64_t j0, int64_t columns, int64_t k0,
                        int64_t depth, int along_columns) {
    const conv_axis *inner = along_columns ? s->column : s->depth, *outer = along_columns ? s->depth : s->column;
    int inner_count = along_columns ? s->columns : s->depths, outer_count = along_columns ? s->depths : s->columns;
    int64_t i0 = along_columns ? j0 : k0, inner_size = along_columns ? columns : depth;
    int64_t o0 = along_columns ? k0 : j0, outer_size = along_columns ? depth : columns;
    conv_axis single = {1, 0, 0, -1, 0};
    int heads = inner_count ? inner_count - 1 : 0;
    const conv_axis *last = inner_count ? &inner[heads] : &single;
    conv_cursor row, begin;
    conv_start(&row, outer, outer_count, o0);
    conv_start(&begin, inner, heads, i0 / last->size);
    for (int d = 0; d < s->rank; d++) row.position[d] -= s->space[d].pad;
    for (int64_t o = 0; o < outer_size; o++, panel += inner_size, conv_next(&row, outer, outer_count)) {
        conv_cursor head = begin;
        int64_t skip = i0 % last->size;
        for (int64_t i = 0; i < inner_size; skip = 0, conv_next(&head, inner, heads)) {
            int64_t position[MAX_AXES], base = row.lhs + head.lhs;
            for (int d = 0; d < s->rank; d++) position[d] = row.position[d] + head.position[d];
            if (last->space >= 0) position[last->space] += skip * last->step;
            else base += skip * last->lhs;
            int64_t length = conv_least(last->size - skip, inner_size - i);
            conv_row r = conv_along(s, last, position, base, length);
            T *to = panel + i;
            const T *x = lhs + r.first;
            i += length;
            if (r.begin >= r.end) {
                memset(to, 0, sizeof(T) * length);
                continue;
            }
            if (r.every > 1) memset(to, 0, sizeof(T) * length);
            else {
                for (int64_t m = 0; m < r.begin; m++) to[m] = 0;
                for (int64_t m = r.end; m < length; m++) to[m] = 0;
            }
            if (r.every == 1 && r.stride == 1) {
                int64_t n = r.end - r.begin;
                to += r.begin;
                if (n > 32) memcpy(to, x, sizeof(T) * n);
                else for (int64_t m = 0; m < n; m++) to[m] = x[m];
            } else {
                for (int64_t m = r.begin; m < r.end; m += r.every, x += r.stride) to[m] = *x;
            }
        }
    }
}

static void NAMED(products)(const conv_shape *s, gemm_function gemm, const T *lhs, const T *rhs, T *out, T *scratch) {
    const T one = 1, zero = 0;
    int64_t O = s->outputs, J = s->J, K = s->K, depth_stride, column_stride;
    int64_t depth_run = conv_run(s->depth, s->depths, &depth_stride);
    int64_t run = conv_run(s->column, s->columns, &column_stride);
    /* The kernel as a matrix: where it is, or packed with the depth as its faster axis. */
    int whole = depth_run == K, depth_fast = 1;
    int64_t ldw = K;
    if (whole && (K == 1 || depth_stride == 1) && (O == 1 || s->rhs_output >= K)) ldw = O == 1 ? K : s->rhs_output;
    else if (whole && (O == 1 || s->rhs_output == 1) && depth_stride >= O) ldw = depth_stride, depth_fast = 0;
    else whole = 0;
    T *packed = scratch;
    if (!whole) scratch += O * K;
    conv_panel block = conv_panel_for(K, J, sizeof(T));
    /* The result in its place if its columns are evenly spaced, else put there from a tile. */
    int features_fast = (s->out_output == 1 || O == 1) && column_stride >= O && (O > 1 || column_stride > 1);
    int in_place = (run == J || run >= 2 * LEAST_COLUMNS) &&
                   (features_fast || (column_stride == 1 && (O == 1 || s->out_output >= run)));
    if (!in_place) features_fast = 0;
    T *panel = scratch, *tile = panel + block.depth * block.columns;
    int along_columns = conv_along_columns(s);
    for (int64_t g = 0; g < s->groups; g++) {
        const T *x = lhs + g * s->lhs_group, *w = rhs + g * s->rhs_group;
        T *y = out + g * s->out_group;
        if (!whole) {
            conv_cursor c;
            conv_start(&c, s->depth, s->depths, 0);
            for (int64_t k = 0; k < K; k++, conv_next(&c, s->depth, s->depths))
                for (int64_t o = 0; o < O; o++) packed[o * K + k] = w[o * s->rhs_output + c.own];
            w = packed;
        }
        for (int64_t j = 0; j < J;) {
            int64_t n = conv_least(block.columns, J - j);
            if (in_place) n = conv_least(n, run - j % run);
            conv_cursor first;
            conv_start(&first, s->column, s->columns, j);
            T *c = in_place ? y + first.own : tile;
            int64_t ldc = in_place ? (features_fast ? (J == 1 ? O : column_stride) : (O == 1 ? n : s->out_output)) : n;
            for (int64_t k = 0; k < K; k += block.depth) {
                int64_t depth = conv_least(block.depth, K - k), ldp = along_columns ? n : depth;
                NAMED(pack)(s, x, panel, j, n, k, depth, along_columns);
                const T *kernel = depth_fast ? w + k : w + k * ldw, *beta = k ? &one : &zero;
                if (features_fast)
                    gemm(depth_fast ? "T" : "N", along_columns ? "T" : "N", &O, &n, &depth, &one, kernel, &ldw, panel,
                         &ldp, beta, c, &ldc);
                else
                    gemm(along_columns ? "N" : "T", depth_fast ? "N" : "T", &n, &O, &depth, &one, panel, &ldp, kernel,
                         &ldw, beta, c, &ldc);
            }
            for (int64_t m = 0; !in_place && m < n; m++, conv_next(&first, s->column, s->columns))
                for (int64_t o = 0; o < O; o++) y[first.own + o * s->out_output] = tile[o * n + m];
            j += n;
        }
    }
}

#endif
#ifdef DIRECT

/* 1u: products of small unsigned integers would be of signed ones. */
WIDE static void NAMED(add_row)(T *sum, const T *x, T w, int64_t n, int64_t every, int64_t stride) {
    if (every == 1 && stride == 1)
        for (int64_t m = 0; m < n; m++) sum[m] += 1u * w * x[m];
    else
        for (int64_t m = 0; m < n; m += every, x += stride) sum[m] += 1u * w * *x;
}

static void NAMED(direct)(const conv_shape *given, const T *lhs, const T *rhs, T *out) {
    conv_shape s = *given;
    conv_axis single = {1, 0, 0, -1, 0};
    /* Rows run along the axis of the columns with neighbours in lhs. */
    int best = 0;
    int64_t least = INT64_MAX;
    for (int i = 0; i < s.columns; i++) {
        int64_t stride = conv_lhs_stride(&s, &s.column[i]);
        if (stride <= least) least = stride, best = i;
    }
    if (!s.columns) s.column[s.columns++] = single;
    conv_axis row = s.column[best];
    for (int i = best; i + 1 < s.columns; i++) s.column[i] = s.column[i + 1];
    s.columns--;
    int64_t rows = s.J / row.size;
    T sum[DIRECT_ROW];
    for (int64_t g = 0; g < s.groups; g++) {
        conv_cursor column;
        conv_start(&column, s.column, s.columns, 0);
        for (int64_t j = 0; j < rows; j++, conv_next(&column, s.column, s.columns))
            for (int64_t i = 0; i < row.size; i += DIRECT_ROW)
                for (int64_t o = 0; o < s.outputs; o++) {
                    conv_cursor from = column, depth;
                    conv_move(&from, &row, MAX_AXES - 1, i);
                    conv_start(&depth, s.depth, s.depths, 0);
                    int64_t n = conv_least(DIRECT_ROW, row.size - i);
                    memset(sum, 0, sizeof(T) * n);
                    for (int64_t k = 0; k < s.K; k++, conv_next(&depth, s.depth, s.depths)) {
                        int64_t position[MAX_AXES];
                        for (int d = 0; d < s.rank; d++)
                            position[d] = from.position[d] + depth.position[d] - s.space[d].pad;
                        conv_row r = conv_along(&s, &row, position, g * s.lhs_group + from.lhs + depth.lhs, n);
                        if (r.begin >= r.end) continue;
                        T w = rhs[g * s.rhs_group + o * s.rhs_output + depth.own];
                        NAMED(add_row)(sum + r.begin, lhs + r.first, w, r.end - r.begin, r.every, r.stride);
                    }
                    T *y = out + g * s.out_group + o * s.out_output + from.own;
                    for (int64_t m = 0; m < n; m++) y[m * row.own] = sum[m];
                }
    }
}

#endif
