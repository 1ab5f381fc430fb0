/* A checksum of memory contents: four lanes of multiplications, so that it is limited by memory bandwidth only.
   It detects mistakes, not deliberate collisions. */

#ifndef MPIJAX_CHECKSUM_H
#define MPIJAX_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define MJ_ODD 0x9E3779B97F4A7C15u

static inline uint64_t mj_stirred(uint64_t h) {
    h = (h ^ (h >> 32)) * 0xD6E8FEB86659FD93u;
    h = (h ^ (h >> 32)) * 0xD6E8FEB86659FD93u;
    return h ^ (h >> 32);
}

static uint64_t mj_checksum(const unsigned char *data, size_t nbytes) {
    uint64_t lanes[4] = {1, 2, 3, 4}, words[4], last[4] = {0, 0, 0, 0};
    size_t left = nbytes;
    for (; left >= 32; left -= 32, data += 32) {
        memcpy(words, data, 32);
        for (int k = 0; k < 4; k++) lanes[k] = (lanes[k] ^ words[k]) * MJ_ODD + (lanes[k] >> 29);
    }
    memcpy(last, data, left);
    uint64_t h = nbytes;
    for (int k = 0; k < 4; k++) h = mj_stirred(h ^ lanes[k]) + mj_stirred(last[k] + (uint64_t)k * MJ_ODD) * MJ_ODD;
    return mj_stirred(h);
}

#endif
