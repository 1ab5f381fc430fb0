/* The least time the machine needs, in C: limit KERNEL [SIZE] prints seconds a call (the median of batches).

   copy, axpy, sum    on SIZE float32, arrays that exist already, one core
   gather, scatter    SIZE float32 from, and added at, random places of as many, one core
   attention          the matrix products of an attention block and its gradient, 8 examples of 128 x 256, 8 heads, by the
                      OpenBLAS that LIMIT_BLAS names, one core; SIZE is the elements of the largest matrix
   heat               ten steps of the heat equation on SIZE x SIZE float32, one core
   allreduce, alltoall, allgather
                      of SIZE float32 of each rank over the ranks of the job
   halo               a hundred exchanges of the borders of a field of SIZE x SIZE float32, in bands of rows, by MPI_Sendrecv
*/
#include <dlfcn.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCHES = 21 };

static float *x, *y, *z;
static long size;
static volatile float sink;

static void copy(void) { memcpy(z, x, size * sizeof(float)); }

static void axpy(void) {
  float *restrict out = z;
  for (long i = 0; i < size; i++) out[i] = 2.5f * x[i] + y[i];
}

static void sum(void) {
  float lanes[32] = {0}, total = 0;
  for (long i = 0; i + 32 <= size; i += 32)
    for (int j = 0; j < 32; j++) lanes[j] += x[i + j];
  for (int j = 0; j < 32; j++) total += lanes[j];
  sink = total;
}

static int *places;

static void gather(void) {
  for (long i = 0; i < size; i++) z[i] = x[places[i]];
}

static void scatter(void) {
  memcpy(z, x, size * sizeof(float));
  for (long i = 0; i < size; i++) z[places[i]] += y[i];
}

static void (*sgemm)(int order, int a_turned, int b_turned, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                     int64_t a_row, const float *b, int64_t b_row, float beta, float *c, int64_t c_row);

/* c = a @ b by rows, of m x k and k x n, `count` times on matrices that follow each other. */
static void product(long m, long k, long n, int count) {
  for (int i = 0; i < count; i++)
    sgemm(101, 111, 111, m, n, k, 1, x + i * m * k, k, y + i * k * n, n, 0, z + i * m * n, n);
}

static void attention(void) {
  product(1024, 256, 768, 1), product(1024, 768, 256, 1), product(256, 1024, 768, 1);          /* queries, keys, values */
  product(128, 32, 128, 64), product(128, 128, 32, 64), product(128, 128, 32, 64);             /* scores */
  product(128, 128, 32, 64), product(128, 32, 128, 64), product(128, 128, 32, 64);             /* scores @ values */
  product(1024, 256, 256, 1), product(1024, 256, 256, 1), product(256, 1024, 256, 1);          /* output */
}

static void heat(void) {
  long n = size;
  memcpy(y, x, n * n * sizeof(float));
  memcpy(z, x, n * n * sizeof(float));
  for (int step = 0; step < 10; step++) {
    const float *restrict u = step % 2 ? z : y;
    float *restrict v = step % 2 ? y : z;
    for (long i = 1; i < n - 1; i++)
      for (long j = 1; j < n - 1; j++) {
        const float *c = u + i * n + j;
        v[i * n + j] = c[0] + 0.1f * (c[n] + c[-n] + c[1] + c[-1] - 4 * c[0]);
      }
  }
}

static void allreduce(void) { MPI_Allreduce(x, z, (int)size, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }

static int ranks = 1;

static void alltoall(void) {
  MPI_Alltoall(x, (int)(size / ranks), MPI_FLOAT, z, (int)(size / ranks), MPI_FLOAT, MPI_COMM_WORLD);
}

static void allgather(void) { MPI_Allgather(x, (int)size, MPI_FLOAT, z, (int)size, MPI_FLOAT, MPI_COMM_WORLD); }

static void halo(void) {
  int rank, rows = (int)(size / ranks);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  int above = (rank + 1) % ranks, below = (rank + ranks - 1) % ranks, n = (int)size;
  for (int i = 0; i < 100; i++) {
    MPI_Sendrecv(x + rows * n, n, MPI_FLOAT, above, 0, x, n, MPI_FLOAT, below, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(x + n, n, MPI_FLOAT, below, 1, x + (rows + 1) * n, n, MPI_FLOAT, above, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
  }
}

static const struct {
  const char *name;
  void (*call)(void);
} kernels[] = {{"copy", copy}, {"axpy", axpy}, {"sum", sum}, {"gather", gather}, {"scatter", scatter},
             {"attention", attention}, {"heat", heat}, {"allreduce", allreduce}, {"alltoall", alltoall}, {"allgather", allgather}, {"halo", halo}};

static int ascending(const void *a, const void *b) {
  double d = *(const double *)a - *(const double *)b;
  return (d > 0) - (d < 0);
}

int main(int argc, char **argv) {
  void (*call)(void) = NULL;
  for (size_t i = 0; argc > 2 && i < sizeof kernels / sizeof *kernels; i++)
    if (!strcmp(argv[1], kernels[i].name)) call = kernels[i].call;
  if (!call) {
    fprintf(stderr, "usage: limit copy|axpy|sum|gather|scatter|attention|heat|allreduce|alltoall|allgather|halo SIZE\n");
    return 2;
  }
  MPI_Init(&argc, &argv);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  size = atol(argv[2]);
  long elements = call == heat || call == halo ? (size + 2) * size : size;
  x = aligned_alloc(64, elements * sizeof(float) + 64);
  y = aligned_alloc(64, elements * sizeof(float) + 64);
  z = aligned_alloc(64, elements * ranks * sizeof(float) + 64);
  for (long i = 0; i < elements; i++) x[i] = y[i] = z[i] = (float)(i % 1000);
  places = aligned_alloc(64, elements * sizeof(int) + 64);
  uint64_t drawn = 1;
  for (long i = 0; i < elements; i++) {
    drawn = drawn * 6364136223846793005u + 1442695040888963407u;
    places[i] = (int)((drawn >> 33) % elements);
  }
  if (call == attention) {
    const char *blas = getenv("LIMIT_BLAS");
    void *library = blas ? dlopen(blas, RTLD_NOW) : NULL;
    *(void **)&sgemm = library ? dlsym(library, "scipy_cblas_sgemm64_") : NULL;
    if (!sgemm) {
      fprintf(stderr, "LIMIT_BLAS names no OpenBLAS: %s\n", library ? "it has no sgemm" : blas ? dlerror() : "it is not set");
      return 2;
    }
  }
  for (int i = 0; i < 3; i++) call();
  int count = elements > 100000 ? 5 : call == halo ? 200 : 20000;
  double times[BATCHES];
  for (int b = 0; b < BATCHES; b++) {
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (int i = 0; i < count; i++) call();
    times[b] = (MPI_Wtime() - start) / count;
  }
  qsort(times, BATCHES, sizeof *times, ascending);
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) printf("%.9g\n", times[BATCHES / 2]);
  MPI_Finalize();
  return 0;
}
