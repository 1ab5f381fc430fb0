/* WIDE functions are compiled for several generations of processors; the best one is selected at run time.
   (Levels, not names such as "haswell": those would match only that vendor's processors.) */
#ifndef MPIJAX_WIDE_H
#define MPIJAX_WIDE_H

#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define WIDE __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define WIDE
#endif

#endif
