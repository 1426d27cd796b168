/*
 * A faster entropy decoder for progressive JPEG, which replaces libjpeg's for sound data.
 *
 * libjpeg spends most of its time on scans that refine AC coefficients: it looks at each coefficient of a block to know
 * whether a correction bit follows. Here a word for each block says which of its coefficients are not zero, so that a
 * run of zeros is one step, and the correction bits of blocks that nobody needs are skipped at once.
 *
 * The data need not be sound: wherever they are unusual (a missing or unknown code, bytes before a marker, coefficients
 * outside their band, fill bytes), decoding fails with WF_UNUSUAL, and libjpeg's own decoder decodes the image.
 */

#ifndef WF_PROGRESSIVE_H
#define WF_PROGRESSIVE_H

#include "huffman.h"

enum { SCAN_LOOK_BITS = 9 };

/*
 * A table entry: the meaning of the next SCAN_LOOK_BITS bits. From the low end:
 *   6 bits   length of the code and of the coefficient's own bits together
 *   1 bit    SCAN_END: the block ends, and with it a run of blocks, of which `run` further bits tell the length
 *   1 bit    LOOK_MORE: the entry is incomplete
 *   8 bits   run: zeros before the coefficient
 *   16 bits  the coefficient, without the bits of later scans; with LOOK_MORE its length in bits
 */
enum { SCAN_END = 0x40, SCAN_UNKNOWN = 0xFF };

typedef struct {
  uint32_t look[1 << SCAN_LOOK_BITS];
  int32_t code_end[17];     /* for each length: one past its last code; 0 if there is none */
  int32_t first_symbol[17]; /* for each length: index of its first code's symbol, less that code */
  uint8_t symbols[256];
} scan_table;

/* The bits of a scan. */
typedef struct {
  uint64_t bits; /* left-aligned, with zeros after the valid ones */
  int valid;     /* number of valid bits */
  const JOCTET *next, *end;
} scan_bits;

typedef struct {
  void (*start_pass)(j_decompress_ptr cinfo);  /* libjpeg's */
  int (*consume_data)(j_decompress_ptr cinfo); /* libjpeg's */
  void (*ac_row)(j_decompress_ptr cinfo, JBLOCKROW blocks, uint64_t *nonzero, JDIMENSION row);
  scan_bits in;
  int odd;                 /* the data are unusual */
  uint32_t end_of_band;    /* number of further blocks without new coefficients */
  uint32_t restarts_to_go; /* MCUs before the next restart marker */
  JDIMENSION mcu_rows_to_go, mcus_to_go; /* rows of MCUs of this scan, MCUs of this row */
  int32_t dc[MAX_COMPS_IN_SCAN];
  uint64_t *nonzero[MAX_COMPONENTS];     /* for each block: its coefficients that are not zero, in the order of scans */
  /* The blocks whose AC coefficients are kept. */
  JDIMENSION left[MAX_COMPONENTS], right[MAX_COMPONENTS], top[MAX_COMPONENTS], bottom[MAX_COMPONENTS];
  scan_table tables[NUM_HUFF_TBLS];
} progressive_decoder;

static progressive_decoder *progressive_of(j_decompress_ptr cinfo);
/* Fails with WF_UNUSUAL. */
static void progressive_give_up(j_decompress_ptr cinfo);

static uint32_t scan_entry(uint32_t symbol, uint32_t len, int is_ac) {
  uint32_t run = is_ac ? symbol >> 4 : 0, size = is_ac ? symbol & 15 : symbol;
  if (is_ac && size == 0 && run < 15)
    return run << 8 | SCAN_END | len;
  return run << 8 | (len + size);
}

/* libjpeg has checked the table: at most 256 symbols, no length with more codes than it has room for, DC symbols of at
 * most 15. */
static void scan_table_make(scan_table *table, const JHUFF_TBL *from, int is_ac) {
  int32_t code = 0, symbol = 0;
  memcpy(table->symbols, from->huffval, sizeof table->symbols);
  for (size_t i = 0; i < 1 << SCAN_LOOK_BITS; i++)
    table->look[i] = (uint32_t)SCAN_UNKNOWN << 16 | LOOK_MORE;
  for (int len = 1; len <= 16; len++, code <<= 1) {
    int32_t count = from->bits[len];
    table->first_symbol[len] = symbol - code;
    table->code_end[len] = count ? code + count : 0;
    for (int32_t i = 0; i < count; i++, code++, symbol++) {
      if (len > SCAN_LOOK_BITS)
        continue;
      uint32_t entry = scan_entry(table->symbols[symbol & 255], (uint32_t)len, is_ac);
      uint32_t total = entry & 63, size = total - (uint32_t)len;
      uint32_t *to = table->look + ((size_t)code << (SCAN_LOOK_BITS - len));
      size_t room = (size_t)1 << (SCAN_LOOK_BITS - len);
      if (total > SCAN_LOOK_BITS) {
        for (size_t n = 0; n < room; n++)
          *to++ = entry | LOOK_MORE | size << 16;
      } else {
        for (uint32_t bits = 0; bits < 1u << size; bits++) {
          uint32_t filled = entry | (uint32_t)(size ? coefficient(bits, size) : 0) << 16;
          for (size_t n = 0; n < room >> size; n++)
            *to++ = filled;
        }
      }
    }
  }
}

/* The complete entry if the table's is incomplete. */
static __attribute__((noinline)) uint32_t scan_look_further(progressive_decoder *self, const scan_table *table,
                                                            uint32_t entry, uint64_t bits, int is_ac) {
  uint32_t size = entry >> 16, total = entry & 63;
  if (size == SCAN_UNKNOWN) {
    uint32_t len = SCAN_LOOK_BITS;
    int32_t code;
    do {
      if (++len > 16) {
        self->odd = 1;
        return SCAN_END | 16;
      }
      code = (int32_t)(bits >> (64 - len));
    } while (code >= table->code_end[len]);
    entry = scan_entry(table->symbols[(code + table->first_symbol[len]) & 255], len, is_ac);
    total = entry & 63;
    size = total - len;
    if (size == 0)
      return entry;
  }
  uint32_t value = (uint32_t)(bits << (total - size) >> (64 - size));
  return (entry & 0xFF00) | total | (uint32_t)coefficient(value, size) << 16;
}

/* Reads bytes one by one, up to the next marker or fill byte. */
static __attribute__((noinline)) void scan_fill_slowly(scan_bits *in) {
  while (in->valid >= 0 && in->valid < 56 && in->next < in->end) {
    JOCTET byte = *in->next;
    if (byte == 0xFF) {
      if (in->next + 1 == in->end || in->next[1] != 0)
        return;
      in->next++;
    }
    in->next++;
    in->bits |= (uint64_t)byte << (56 - in->valid);
    in->valid += 8;
  }
}

/* Makes at least `need` bits valid, of at most 56, or all that are left. */
static inline __attribute__((always_inline)) void scan_fill(scan_bits *in, int need) {
  uint64_t word;
  if (in->valid >= need)
    return;
  if (__builtin_expect(in->valid >= 0 && in->end - in->next >= 8 && !has_ff(word = load_big_endian(in->next)), 1)) {
    in->bits |= word >> in->valid;
    in->next += (63 - in->valid) >> 3;
    in->valid |= 56;
  } else {
    scan_fill_slowly(in);
  }
}

static inline __attribute__((always_inline)) void scan_take(scan_bits *in, uint32_t bits) {
  in->bits <<= bits;
  in->valid -= (int)bits;
}

/* The next entry. A code and its coefficient have at most 31 bits; 16 of the bits after a code are valid too. */
static inline __attribute__((always_inline)) uint32_t scan_next(progressive_decoder *self, const scan_table *table,
                                                                scan_bits *in, int is_ac) {
  scan_fill(in, 32);
  uint32_t entry = table->look[in->bits >> (64 - SCAN_LOOK_BITS)];
  if (__builtin_expect(entry & LOOK_MORE, 0))
    entry = scan_look_further(self, table, entry, in->bits, is_ac);
  scan_take(in, entry & 63);
  return entry;
}

/* The number of blocks that end without new coefficients, this one included. */
static inline __attribute__((always_inline)) uint32_t scan_end_of_band(scan_bits *in, uint32_t entry) {
  uint32_t run = entry >> 8 & 0xFF, blocks = 1u << run;
  if (run) {
    blocks += (uint32_t)(in->bits >> (64 - run));
    scan_take(in, run);
  }
  return blocks;
}

/* After the last MCU before a marker: nothing but the rest of a byte may be left. */
static void scan_expect_marker(progressive_decoder *self) {
  scan_bits *in = &self->in;
  scan_fill_slowly(in);
  if (in->valid < 0 || in->valid >= 8 || in->end - in->next < 2 || in->next[1] == 0xFF)
    self->odd = 1;
}

/* Before an MCU: a restart marker may be due. */
static inline __attribute__((always_inline)) void scan_begin_mcu(j_decompress_ptr cinfo, progressive_decoder *self) {
  if (__builtin_expect(cinfo->restart_interval == 0, 1))
    return;
  if (self->restarts_to_go == 0) {
    scan_expect_marker(self);
    if (self->odd || self->in.next[1] != JPEG_RST0 + cinfo->marker->next_restart_num)
      progressive_give_up(cinfo);
    cinfo->marker->next_restart_num = (cinfo->marker->next_restart_num + 1) & 7;
    self->in.next += 2;
    self->in.bits = 0;
    self->in.valid = 0;
    self->end_of_band = 0;
    memset(self->dc, 0, sizeof self->dc);
    self->restarts_to_go = cinfo->restart_interval;
  }
  self->restarts_to_go--;
}

/* After a row of MCUs. At the end of the scan, libjpeg goes on behind its data. */
static void scan_end_row(j_decompress_ptr cinfo, progressive_decoder *self) {
  if (--self->mcu_rows_to_go == 0) {
    scan_expect_marker(self);
    cinfo->src->next_input_byte = self->in.next;
    cinfo->src->bytes_in_buffer = (size_t)(self->in.end - self->in.next);
  }
  if (self->odd || self->in.valid < 0)
    progressive_give_up(cinfo);
}

/* ---- DC coefficients, MCU by MCU ---- */

static boolean scan_dc_mcu(j_decompress_ptr cinfo, JBLOCKROW *blocks) {
  progressive_decoder *self = progressive_of(cinfo);
  scan_begin_mcu(cinfo, self);
  for (int b = 0; b < cinfo->blocks_in_MCU; b++) {
    if (cinfo->Ah) {
      scan_fill(&self->in, 1);
      (*blocks[b])[0] |= (JCOEF)((self->in.bits >> 63) << cinfo->Al);
      scan_take(&self->in, 1);
      continue;
    }
    int component = cinfo->MCU_membership[b];
    const scan_table *table = &self->tables[cinfo->cur_comp_info[component]->dc_tbl_no];
    self->dc[component] += (int16_t)(scan_next(self, table, &self->in, 0) >> 16);
    self->odd |= self->dc[component] > 1 << 20 || self->dc[component] < -(1 << 20);
    (*blocks[b])[0] = (JCOEF)((uint32_t)self->dc[component] << cinfo->Al);
  }
  if (--self->mcus_to_go == 0) {
    self->mcus_to_go = cinfo->MCUs_per_row;
    scan_end_row(cinfo, self);
  }
  return TRUE;
}

/* ---- AC coefficients, a row of blocks at a time ---- */

/* The set bit after the `skipped` lowest ones; 0 if there is none. */
static inline __attribute__((always_inline)) uint64_t set_bit(uint64_t set, uint32_t skipped, const int bmi2) {
#if defined(__x86_64__)
  if (bmi2) {
    uint64_t bit;
    __asm__("pdepq %2, %1, %0" : "=r"(bit) : "r"((uint64_t)1 << skipped), "rm"(set));
    return bit;
  }
#endif
  while (skipped-- && set)
    set &= set - 1;
  return set & (0 - set);
}

static inline __attribute__((always_inline)) void scan_first(progressive_decoder *self, const scan_table *table,
                                                             scan_bits *in, JCOEF *block, uint64_t *nonzero,
                                                             const int from, const int to, const int low) {
  if (self->end_of_band) {
    self->end_of_band--;
    return;
  }
  uint64_t made = 0;
  for (int k = from; k <= to; k++) {
    uint32_t entry = scan_next(self, table, in, 1);
    if (entry & SCAN_END) {
      self->end_of_band = scan_end_of_band(in, entry) - 1;
      break;
    }
    int32_t value = (int16_t)(entry >> 16);
    k += (int)(entry >> 8 & 0xFF);
    if (value == 0)
      continue; /* sixteen zeros */
    uint32_t shifted = (uint32_t)value << low;
    if (__builtin_expect(k > to || (int16_t)shifted != (int32_t)shifted, 0)) {
      self->odd = 1;
      break;
    }
    made |= (uint64_t)1 << k;
    if (block)
      block[zigzag[k]] = (JCOEF)shifted;
  }
  *nonzero |= made;
}

/* Reads a bit for each of some coefficients: whether its absolute value grows. */
static inline __attribute__((always_inline)) void scan_correct(scan_bits *in, JCOEF *block, uint64_t which,
                                                               const int low) {
  for (int left = __builtin_popcountll(which); left > 0;) {
    const int now = left < 48 ? left : 48;
    scan_fill(in, now);
    for (uint64_t bits = in->bits, i = 0; block && i < (uint64_t)now; i++, bits <<= 1, which &= which - 1) {
      JCOEF *at = &block[zigzag[__builtin_ctzll(which)]];
      const int32_t value = *at, grows = -(int32_t)(bits >> 63 & ~((uint32_t)value >> low));
      *at = (JCOEF)(value + (grows & (int32_t)((uint32_t)((value >> 31) | 1) << low)));
    }
    scan_take(in, (uint32_t)now);
    left -= now;
  }
}

static inline __attribute__((always_inline)) void scan_refine(progressive_decoder *self, const scan_table *table,
                                                              scan_bits *in, JCOEF *block, uint64_t *nonzero,
                                                              const int from, const int to, const int low,
                                                              const int bmi2) {
  const uint64_t band = (~UINT64_C(0) >> (63 - to)) & (~UINT64_C(0) << from), old = *nonzero & band;
  uint64_t made = 0, rest = band; /* the places that have not been passed */
  if (self->end_of_band == 0) {
    while (rest) {
      uint32_t entry = scan_next(self, table, in, 1);
      if (entry & SCAN_END) {
        self->end_of_band = scan_end_of_band(in, entry);
        break;
      }
      int32_t value = (int16_t)(entry >> 16);
      uint64_t target = set_bit(rest & ~old, entry >> 8 & 0xFF, bmi2);
      if (__builtin_expect(target == 0 || value > 1 || value < -1, 0)) {
        self->odd = 1;
        break;
      }
      scan_correct(in, block, rest & old & (target - 1), low);
      if (value) {
        made |= target;
        if (block)
          block[zigzag[__builtin_ctzll(target)]] = (JCOEF)(value * (1 << low));
      }
      rest &= ~(target | (target - 1));
    }
  }
  if (self->end_of_band) {
    scan_correct(in, block, rest & old, low);
    self->end_of_band--;
  }
  *nonzero |= made;
}

static inline __attribute__((always_inline)) void scan_row(j_decompress_ptr cinfo, JBLOCKROW blocks, uint64_t *nonzero,
                                                           JDIMENSION row, const int bmi2) {
  progressive_decoder *self = progressive_of(cinfo);
  const jpeg_component_info *component = cinfo->cur_comp_info[0];
  const int c = component->component_index, from = cinfo->Ss, to = cinfo->Se, low = cinfo->Al, refines = cinfo->Ah;
  const scan_table *table = &self->tables[component->ac_tbl_no];
  const int is_kept = row >= self->top[c] && row < self->bottom[c];
  const JDIMENSION left = is_kept ? self->left[c] : 0, right = is_kept ? self->right[c] : 0;
  scan_bits in = self->in;
  for (JDIMENSION i = 0; i < cinfo->MCUs_per_row; i++) {
    if (__builtin_expect(cinfo->restart_interval != 0, 0)) {
      self->in = in;
      scan_begin_mcu(cinfo, self);
      in = self->in;
    }
    JCOEF *block = i >= left && i < right ? blocks[i] : NULL;
    if (refines)
      scan_refine(self, table, &in, block, &nonzero[i], from, to, low, bmi2);
    else
      scan_first(self, table, &in, block, &nonzero[i], from, to, low);
  }
  self->in = in;
}

static void scan_row_plain(j_decompress_ptr cinfo, JBLOCKROW blocks, uint64_t *nonzero, JDIMENSION row) {
  scan_row(cinfo, blocks, nonzero, row, 0);
}

#if defined(__x86_64__)
__attribute__((target("bmi,bmi2,popcnt"))) static void scan_row_bmi2(j_decompress_ptr cinfo, JBLOCKROW blocks,
                                                                     uint64_t *nonzero, JDIMENSION row) {
  scan_row(cinfo, blocks, nonzero, row, 1);
}
#endif

/* Replaces libjpeg's loop over the MCUs of a row, for scans of AC coefficients. */
static int scan_consume(j_decompress_ptr cinfo) {
  progressive_decoder *self = progressive_of(cinfo);
  const jpeg_component_info *component = cinfo->cur_comp_info[0];
  const JDIMENSION sampling = (JDIMENSION)component->v_samp_factor, first = cinfo->input_iMCU_row * sampling;
  JBLOCKARRAY rows = (*cinfo->mem->access_virt_barray)(
      (j_common_ptr)cinfo, cinfo->coef->coef_arrays[component->component_index], first, sampling, TRUE);
  cinfo->master->last_good_iMCU_row = cinfo->input_iMCU_row;
  for (JDIMENSION row = first; row < first + sampling && row < component->height_in_blocks; row++) {
    uint64_t *nonzero = self->nonzero[component->component_index] + (size_t)row * component->width_in_blocks;
    (*self->ac_row)(cinfo, rows[row - first], nonzero, row);
    scan_end_row(cinfo, self);
  }
  if (++cinfo->input_iMCU_row < cinfo->total_iMCU_rows)
    return JPEG_ROW_COMPLETED;
  (*cinfo->inputctl->finish_input_pass)(cinfo);
  return JPEG_SCAN_COMPLETED;
}

/* ---- scans ---- */

/* Call this when libjpeg has started a scan, and so has checked its tables. */
static void scan_start(j_decompress_ptr cinfo) {
  progressive_decoder *self = progressive_of(cinfo);
  const int is_ac = cinfo->Ss > 0;
  self->in.bits = 0;
  self->in.valid = 0;
  self->in.next = cinfo->src->next_input_byte;
  self->in.end = self->in.next + cinfo->src->bytes_in_buffer;
  self->end_of_band = 0;
  self->restarts_to_go = cinfo->restart_interval;
  self->mcu_rows_to_go = cinfo->MCU_rows_in_scan;
  self->mcus_to_go = cinfo->MCUs_per_row;
  memset(self->dc, 0, sizeof self->dc);
  for (int c = 0; c < cinfo->comps_in_scan; c++) {
    const jpeg_component_info *component = cinfo->cur_comp_info[c];
    if (is_ac)
      scan_table_make(&self->tables[component->ac_tbl_no], cinfo->ac_huff_tbl_ptrs[component->ac_tbl_no], 1);
    else if (cinfo->Ah == 0)
      scan_table_make(&self->tables[component->dc_tbl_no], cinfo->dc_huff_tbl_ptrs[component->dc_tbl_no], 0);
  }
  cinfo->entropy->decode_mcu = scan_dc_mcu;
  cinfo->coef->consume_data = is_ac ? scan_consume : self->consume_data;
}

static void scan_start_pass(j_decompress_ptr cinfo) {
  (*progressive_of(cinfo)->start_pass)(cinfo);
  scan_start(cinfo);
}

/* Call this when libjpeg has started the first scan, with the rectangle in pixels of the whole image outside of which
 * AC coefficients are not needed. */
static void progressive_start(j_decompress_ptr cinfo, JDIMENSION left, JDIMENSION top, JDIMENSION right,
                              JDIMENSION bottom) {
  progressive_decoder *self = progressive_of(cinfo);
  const int width = cinfo->max_h_samp_factor * DCTSIZE, height = cinfo->max_v_samp_factor * DCTSIZE;
  for (int c = 0; c < cinfo->num_components; c++) {
    const jpeg_component_info *component = &cinfo->comp_info[c];
    const JDIMENSION across = (JDIMENSION)component->h_samp_factor, down = (JDIMENSION)component->v_samp_factor;
    const size_t len_bytes =
        sizeof(uint64_t) * (size_t)component->width_in_blocks * (size_t)component->height_in_blocks;
    self->nonzero[c] = (*cinfo->mem->alloc_large)((j_common_ptr)cinfo, JPOOL_IMAGE, len_bytes);
    memset(self->nonzero[c], 0, len_bytes);
    self->left[c] = left / width * across;
    self->top[c] = top / height * down;
    self->right[c] = (right / width + 1) * across;
    self->bottom[c] = (bottom / height + 1) * down;
  }
  self->odd = 0;
  self->ac_row = scan_row_plain;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("bmi2"))
    self->ac_row = scan_row_bmi2;
#endif
  self->start_pass = cinfo->entropy->start_pass;
  self->consume_data = cinfo->coef->consume_data;
  cinfo->entropy->start_pass = scan_start_pass;
  scan_start(cinfo);
  cinfo->inputctl->consume_input = cinfo->coef->consume_data;
}

#endif
