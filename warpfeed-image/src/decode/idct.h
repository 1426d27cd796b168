/*
 * The inverse DCT of blocks with absurd coefficients, which damaged and crafted files have.
 *
 * libjpeg has several versions of the inverse DCT. They agree as long as every step fits 16 bits and the results are
 * between -512 and 511, as in all photographs. Outside of this common range they differ: the assembler for x86
 * saturates, the C version looks results up in a table that repeats itself, and the version for ARM drops high bits.
 * Pillow's wheels for x86 have the assembler, so we want its arithmetic everywhere. Where libjpeg runs another version,
 * blocks that may leave the common range are transformed here.
 */

#ifndef WF_IDCT_H
#define WF_IDCT_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <jpeglib.h> /* with JPEG_INTERNALS defined */
#include <jdct.h>

#if defined(WITH_SIMD) && (defined(__x86_64__) || defined(__i386__) || defined(_M_X64) || defined(_M_IX86))
#define IDCT_ASSEMBLER_SATURATES 1
#else
#define IDCT_ASSEMBLER_SATURATES 0
#endif

/*
 * Whether no step can leave the common range. Results of the first pass are at most 5.6 times the sum of the
 * coefficients' magnitudes, and pixels at most 0.241 times: 11,200 and 482 for a sum of 2,000.
 */
static int idct_is_tame(const JCOEF *block, const ISLOW_MULT_TYPE *quant) {
  uint32_t any = 0, sum = 0;
  for (int i = 0; i < DCTSIZE2; i++) {
    uint32_t magnitude = (uint32_t)abs(block[i]) * (uint32_t)abs(quant[i]);
    any |= magnitude;
    sum += magnitude;
  }
  /* Without the first test the sum might have wrapped. */
  return any < 2048 && sum <= 2000;
}

static int16_t idct_wrap(int32_t value) {
  uint16_t low = (uint16_t)value;
  return (int16_t)(low < 0x8000 ? low : low - 0x10000);
}

/* The value divided by 2^shift, rounded, saturated to 16 bits. */
static int16_t idct_descale(int32_t value, int shift) {
  int32_t rounded = (value + (1 << (shift - 1))) >> shift;
  return (int16_t)(rounded < INT16_MIN ? INT16_MIN : rounded > INT16_MAX ? INT16_MAX : rounded);
}

/*
 * Transforms eight values, `step` apart, by the factorization of Loeffler, Ligtenberg and Moschytz with libjpeg's
 * 13-bit constants. Sums of two inputs wrap at 16 bits. The largest sum of products is 2.12e9, so 32 bits hold them
 * all.
 */
static void idct_line(const int16_t *in, int16_t *out, size_t step, int shift) {
  const int32_t in1 = in[step], in2 = in[2 * step], in3 = in[3 * step];
  const int32_t in5 = in[5 * step], in6 = in[6 * step], in7 = in[7 * step];

  const int32_t sum = idct_wrap(in[0] + in[4 * step]) * 8192, difference = idct_wrap(in[0] - in[4 * step]) * 8192;
  const int32_t low = in2 * 10703 + in6 * 4433, high = in2 * 4433 - in6 * 10704;
  const int32_t even[4] = { sum + low, difference + high, difference - high, sum - low };

  const int32_t sum37 = idct_wrap(in3 + in7), sum15 = idct_wrap(in1 + in5);
  const int32_t z3 = sum37 * -6436 + sum15 * 9633, z4 = sum37 * 9633 + sum15 * 6437;
  const int32_t odd[4] = {
    in1 * 4926 - in7 * 7373 + z4,
    in3 * 4177 - in5 * 20995 + z3,
    in3 * -20995 - in5 * 4176 + z4,
    in1 * -7373 - in7 * 4927 + z3,
  };

  for (size_t i = 0; i < 4; i++) {
    out[i * step] = idct_descale(even[i] + odd[i], shift);
    out[(7 - i) * step] = idct_descale(even[i] - odd[i], shift);
  }
}

/* Transforms a block with the assembler's arithmetic. Its eight rows go to `rows`, from `column` on. */
static void idct_saturating(const JCOEF *block, const ISLOW_MULT_TYPE *quant, JSAMPARRAY rows, JDIMENSION column) {
  int16_t values[DCTSIZE2], lines[DCTSIZE2];
  int first_row_alone = 1;
  for (int i = 0; i < DCTSIZE2; i++) {
    values[i] = idct_wrap((int32_t)((uint32_t)block[i] * (uint32_t)quant[i]));
    first_row_alone &= i < DCTSIZE || block[i] == 0;
  }
  /* For such blocks the assembler takes a shortcut, which wraps where the full transform saturates. */
  if (first_row_alone)
    for (size_t i = 0; i < DCTSIZE2; i++)
      lines[i] = idct_wrap(values[i % DCTSIZE] * 4);
  else
    for (size_t i = 0; i < DCTSIZE; i++)
      idct_line(values + i, lines + i, DCTSIZE, 11);
  for (size_t y = 0; y < DCTSIZE; y++) {
    int16_t row[DCTSIZE];
    idct_line(lines + y * DCTSIZE, row, 1, 18);
    for (size_t x = 0; x < DCTSIZE; x++)
      rows[y][column + x] = (JSAMPLE)(row[x] < -128 ? 0 : row[x] > 127 ? 255 : row[x] + 128);
  }
}

#endif
