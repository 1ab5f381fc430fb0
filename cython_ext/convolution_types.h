/* The part of convolution.h that depends on the type of elements: T, NAMED(function), and GEMM or DIRECT. */

#ifdef GEMM

/* Packs elements of lhs for columns [j0, j0 + columns) and depth [k0, k0 + depth), contiguous along one of the two. */
static void NAMED(pack)(const conv_shape *s, const T *lhs, T *panel, int64_t j0, int64_t columns, int64_t k0,
                        int64_t depth, int along_columns) {
    const conv_axis *inner = along_columns ? s->column : s->depth, *outer = along_columns ? s->depth : s->column;
    int inner_count = along_columns ? s->columns : s->depths, outer_count = along_columns ? s->depths : s->columns;
    int64_t begin = along_columns ? j0 : k0, width = along_columns ? columns : depth, end = begin + width;
    int64_t rows = along_columns ? depth : columns;
    conv_piece pieces[MAX_PIECES];
    for (int64_t from = begin; from < end;) {
        int number;
        int64_t stride, to = conv_pieces(inner, inner_count, from, end, pieces, &number, &stride);
        conv_cursor row;
        conv_start(&row, outer, outer_count, along_columns ? k0 : j0);
        T *line = panel + (from - begin);
        for (int64_t i = 0; i < rows; i++, line += width, conv_next(&row, outer, outer_count)) {
            T *y = line;
            const T *origin = lhs + row.lhs;
            for (int p = 0; p < number; p++) {
                const T *x = origin + pieces[p].first;
                int64_t n = pieces[p].count;
                if (stride == 1) memcpy(y, x, sizeof(T) * n);
                else for (int64_t m = 0; m < n; m++) y[m] = x[m * stride];
                y += n;
            }
        }
        from = to;
    }
}

static void NAMED(products)(const conv_shape *s, gemm_function gemm, const T *lhs, const T *rhs, T *out, T *scratch) {
    const T one = 1, zero = 0;
    int64_t O = s->outputs, J = s->J, K = s->K, depth_stride, column_stride;
    int64_t depth_run = conv_run(s->depth, s->depths, &depth_stride);
    int64_t run = conv_run(s->column, s->columns, &column_stride);
    /* The kernel as a matrix: in place, or packed with the depth as its faster axis. */
    int whole = depth_run == K, depth_fast = 1;
    int64_t ldw = K;
    if (whole && (K == 1 || depth_stride == 1) && (O == 1 || s->rhs_output >= K)) ldw = O == 1 ? K : s->rhs_output;
    else if (whole && (O == 1 || s->rhs_output == 1) && depth_stride >= O) ldw = depth_stride, depth_fast = 0;
    else whole = 0;
    T *packed = scratch;
    if (!whole) scratch += O * K;
    conv_panel block = conv_panel_for(K, J, sizeof(T));
    /* The result is written in place if its columns are evenly spaced, else through a tile. */
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

/* 1u: otherwise products of small unsigned integers would be computed as signed ones. */
WIDE static void NAMED(add_row)(T *sum, const T *x, T w, int64_t n, int64_t stride) {
    if (stride == 1)
        for (int64_t m = 0; m < n; m++) sum[m] += 1u * w * x[m];
    else
        for (int64_t m = 0; m < n; m++) sum[m] += 1u * w * x[m * stride];
}

static void NAMED(direct)(const conv_shape *given, const T *lhs, const T *rhs, T *out) {
    conv_shape s = *given;
    /* Rows run along the column axis that is contiguous in lhs; s keeps the other axes. */
    int best = 0;
    for (int i = 1; i < given->columns; i++)
        if (given->column[i].lhs <= given->column[best].lhs) best = i;
    conv_axis single = {1, 0, 0}, row = given->columns ? given->column[best] : single;
    s.columns = 0;
    for (int i = 0; i < given->columns; i++)
        if (i != best) s.column[s.columns++] = given->column[i];
    int64_t rows = s.J / row.size;
    T sum[DIRECT_ROW];
    for (int64_t g = 0; g < s.groups; g++) {
        conv_cursor column, depth;
        conv_start(&column, s.column, s.columns, 0);
        for (int64_t j = 0; j < rows; j++, conv_next(&column, s.column, s.columns))
            for (int64_t i = 0; i < row.size; i += DIRECT_ROW)
                for (int64_t o = 0; o < s.outputs; o++) {
                    int64_t n = conv_least(DIRECT_ROW, row.size - i);
                    const T *x = lhs + g * s.lhs_group + column.lhs + i * row.lhs;
                    const T *w = rhs + g * s.rhs_group + o * s.rhs_output;
                    T *y = out + g * s.out_group + o * s.out_output + column.own + i * row.own;
                    memset(sum, 0, sizeof(T) * n);
                    conv_start(&depth, s.depth, s.depths, 0);
                    for (int64_t k = 0; k < s.K; k++, conv_next(&depth, s.depth, s.depths))
                        NAMED(add_row)(sum, x + depth.lhs, w[depth.own], n, row.lhs);
                    for (int64_t m = 0; m < n; m++) y[m * row.own] = sum[m];
                }
    }
}

#endif
