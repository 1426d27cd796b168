/*
 * A faster entropy decoder for baseline JPEG, which replaces libjpeg's.
 *
 * With photographs of good quality, libjpeg spends more than two thirds of its time on Huffman decoding. This decoder
 * differs in three ways. A table entry gives the length of code and coefficient bits together, so that the next look-up
 * need not wait for the coefficient. Bits are read eight bytes at a time. Blocks that are not needed (rows above a
 * rectangle, columns beside it) are only walked through. If the caller knows entry points, rows above the rectangle and
 * data beside it are not read at all.
 *
 * The results are equal for damaged data too: zero bits follow the end of a segment, a code that does not exist gives a
 * zero, and blocks after the end of the data stay empty. Unlike libjpeg's fast path, this decoder warns of every bad
 * code, and leaves no remains of a first attempt in the block where a marker interrupts the data. libjpeg's fast path
 * also takes a fill byte before a stuffed 0xFF (FF FF 00) for a marker, and leaves such remains in data that are
 * otherwise good. Pillow has these pixels, so libjpeg decodes images with such bytes.
 */

#ifndef WF_HUFFMAN_H
#define WF_HUFFMAN_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <jpeglib.h> /* with JPEG_INTERNALS defined */
#include <jerror.h>

/* Wider tables would cost more cache than they save, and five entries must fit in the bits that one FILL guarantees. */
enum { LOOK_BITS = 11, LOOKS_A_FILL = 5 };
_Static_assert(LOOKS_A_FILL * LOOK_BITS <= 56, "a fill must last for all look-ups before the next");

/*
 * A table entry: the meaning of the next LOOK_BITS bits. From the low end:
 *   6 bits   length of the code and of the coefficient's own bits together
 *   1 bit    unused
 *   1 bit    LOOK_MORE: the entry is incomplete
 *   8 bits   advance of the coefficient's index: zeros before it, plus 1; END_OF_BLOCK for the end of the block
 *   16 bits  the coefficient; with LOOK_MORE its length in bits, or 0 if the code itself is longer or does not exist
 */
enum { LOOK_MORE = 0x80, END_OF_BLOCK = 64 };

typedef struct {
  uint32_t look[1 << LOOK_BITS];
  /* Entries for blocks that are only walked through: as many AC codes as fit, taken at once. They are like those above,
   * but have in the coefficient's place the index's advance before the last code, which counts only if the block
   * reaches it. */
  uint32_t pass[1 << LOOK_BITS];
  int32_t code_end[17];     /* for each length: one past its last code; 0 if there is none */
  int32_t first_symbol[17]; /* for each length: index of its first code's symbol, less that code */
  uint8_t symbols[256];
  uint8_t counts[17];
  int is_ac;
} huffman_table;

typedef struct huffman_decoder {
  void (*keep)(j_decompress_ptr cinfo, struct huffman_decoder *self, JBLOCKROW *blocks);
  void (*pass)(j_decompress_ptr cinfo, struct huffman_decoder *self, JBLOCKROW *unused);
  uint64_t bits; /* left-aligned, with zeros after the valid ones */
  int valid;     /* number of valid bits */
  uint32_t restarts_to_go;
  JDIMENSION column; /* column of the next MCU */
  const JOCTET *bytes; /* the whole file */
  size_t len_bytes;
  wf_entries known;   /* no points if none are known */
  wf_entries learned; /* no points if none are to be learned, or none can be */
  uint32_t learned_points; /* number of points learned so far */
  JDIMENSION next_learned; /* column of the next point to learn */
  int unprepared; /* rows without known entry points were needed */
  int odd;        /* the data so far contain meaningless bytes: fill bytes, or unused ones before a restart marker */
  int filled;     /* fill bytes came before a stuffed 0xFF: libjpeg's own decoder must decode the image */
  int32_t dc[MAX_COMPS_IN_SCAN];
  int block_component[D_MAX_BLOCKS_IN_MCU];
  int block_is_dc[D_MAX_BLOCKS_IN_MCU]; /* one sample is made of the block, so its AC coefficients do not matter */
  const huffman_table *block_dc[D_MAX_BLOCKS_IN_MCU], *block_ac[D_MAX_BLOCKS_IN_MCU];
  huffman_table dc_tables[NUM_HUFF_TBLS], ac_tables[NUM_HUFF_TBLS];
} huffman_decoder;

/* Place of the k-th coefficient of a block. Places after the 63rd are for damaged data and for the end of a block. */
static const uint8_t zigzag[63 + END_OF_BLOCK] = {
  0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6,
  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46,
  53, 60, 61, 54, 47, 55, 62, 63,
  63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63,
  63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63,
  63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63,
};

/* A coefficient of `size` bits; one that starts with 0 is negative. */
static inline __attribute__((always_inline)) int32_t coefficient(uint32_t bits, uint32_t size) {
  return (int32_t)bits + (int32_t)(((bits >> (size - 1)) - 1) & (1 - (1u << size)));
}

/* The number by which a symbol advances the index. It does not matter for a DC coefficient. */
static inline uint32_t symbol_advance(const huffman_table *table, uint32_t symbol) {
  if (!table->is_ac || ((symbol & 15) == 0 && symbol != 0xF0))
    return END_OF_BLOCK;
  return (symbol >> 4) + 1;
}

static void huffman_table_make_pass(huffman_table *table) {
  const uint32_t mask = (1u << LOOK_BITS) - 1;
  for (uint32_t at = 0; at <= mask; at++) {
    uint32_t entry = table->look[at], total = entry & 63, advance = entry >> 8 & 0xFF, before = 0;
    if (!(entry & LOOK_MORE)) {
      while (total < LOOK_BITS && advance < DCTSIZE2 - 1) {
        uint32_t next = table->look[at << total & mask];
        if (next & LOOK_MORE || total + (next & 63) > LOOK_BITS)
          break;
        before = advance;
        advance += next >> 8 & 0xFF;
        total += next & 63;
      }
      entry = before << 16 | advance << 8 | total;
    }
    table->pass[at] = entry;
  }
}

/* libjpeg has checked the table: at most 256 symbols, no length with more codes than it has room for. */
static void huffman_table_make(huffman_table *table, const JHUFF_TBL *from, int is_ac) {
  int32_t code = 0, symbol = 0;
  if (memcmp(table->symbols, from->huffval, sizeof table->symbols) == 0 &&
      memcmp(table->counts, from->bits, sizeof table->counts) == 0 && table->is_ac == is_ac && table->code_end[0])
    return; /* the last image had the same */
  memcpy(table->symbols, from->huffval, sizeof table->symbols);
  memcpy(table->counts, from->bits, sizeof table->counts);
  table->is_ac = is_ac;
  table->code_end[0] = 1;
  for (size_t i = 0; i < 1 << LOOK_BITS; i++)
    table->look[i] = LOOK_MORE;
  for (int len = 1; len <= 16; len++, code <<= 1) {
    int32_t count = from->bits[len];
    table->first_symbol[len] = symbol - code;
    table->code_end[len] = count ? code + count : 0;
    for (int32_t i = 0; i < count; i++, code++, symbol++) {
      uint32_t value = from->huffval[symbol & 255], size = value & 15;
      if (len > LOOK_BITS)
        continue;
      uint32_t entry = symbol_advance(table, value) << 8 | ((uint32_t)len + size);
      uint32_t *to = table->look + ((size_t)code << (LOOK_BITS - len));
      size_t room = (size_t)1 << (LOOK_BITS - len);
      if ((uint32_t)len + size > LOOK_BITS) {
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
  if (is_ac)
    huffman_table_make_pass(table);
}

/* The complete entry if the table's is incomplete. A code that does not exist is 17 bits long and means 0. */
static __attribute__((noinline)) uint32_t huffman_look_further(j_decompress_ptr cinfo, const huffman_table *table,
                                                               uint32_t entry, uint64_t bits) {
  uint32_t size = entry >> 16, total = entry & 63;
  if (size == 0) {
    for (uint32_t len = LOOK_BITS + 1;; len++) {
      if (len > 16) {
        WARNMS(cinfo, JWRN_HUFF_BAD_CODE);
        return END_OF_BLOCK << 8 | 17;
      }
      int32_t code = (int32_t)(bits >> (64 - len));
      if (code < table->code_end[len]) {
        uint32_t value = table->symbols[(code + table->first_symbol[len]) & 255];
        size = value & 15;
        total = len + size;
        entry = symbol_advance(table, value) << 8 | total;
        if (size == 0)
          return entry;
        break;
      }
    }
  }
  uint32_t value = (uint32_t)(bits << (total - size) >> (64 - size));
  return (entry & 0xFF00) | total | (uint32_t)coefficient(value, size) << 16;
}

static void huffman_out_of_data(j_decompress_ptr cinfo, huffman_decoder *self) {
  self->valid = 0;
  self->bits = 0;
  if (!cinfo->entropy->insufficient_data) {
    WARNMS(cinfo, JWRN_HIT_MARKER);
    cinfo->entropy->insufficient_data = TRUE;
  }
}

/* Reads bytes one by one, up to the next marker. */
static __attribute__((noinline)) void huffman_fill_slowly(j_decompress_ptr cinfo, huffman_decoder *self) {
  struct jpeg_source_mgr *src = cinfo->src;
  if (self->valid < 0)
    huffman_out_of_data(cinfo, self);
  while (self->valid < 56 && cinfo->unread_marker == 0) {
    int byte = -1, escaped = 0, fill = 0;
    do {
      if (src->bytes_in_buffer == 0 && !(*src->fill_input_buffer)(cinfo)) {
        cinfo->unread_marker = JPEG_EOI;
        return;
      }
      byte = *src->next_input_byte++;
      src->bytes_in_buffer--;
      if (escaped && byte != 0xFF) {
        if (byte != 0) {
          cinfo->unread_marker = byte;
          return;
        }
        self->filled |= fill;
        byte = 0xFF;
        break;
      }
      fill |= escaped; /* the byte before was 0xFF too */
      self->odd |= fill;
      escaped = byte == 0xFF;
    } while (escaped);
    self->bits |= (uint64_t)byte << (56 - self->valid);
    self->valid += 8;
  }
}

static inline __attribute__((always_inline)) uint64_t load_big_endian(const JOCTET *from) {
  uint64_t word;
  memcpy(&word, from, sizeof word);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  word = __builtin_bswap64(word);
#endif
  return word;
}

static inline __attribute__((always_inline)) int has_ff(uint64_t word) {
  const uint64_t low = UINT64_C(0x0101010101010101), high = UINT64_C(0x8080808080808080);
  return ((~word - low) & word & high) != 0;
}

/* Fills up to at least 56 bits, or with all bits left: enough for LOOKS_A_FILL complete entries. */
#define FILL                                                                                                           \
  do {                                                                                                                 \
    uint64_t word_;                                                                                                    \
    if (__builtin_expect(next <= last && !has_ff(word_ = load_big_endian(next)), 1)) {                                 \
      bits |= word_ >> valid;                                                                                          \
      next += (63 - valid) >> 3;                                                                                       \
      valid |= 56;                                                                                                     \
    } else {                                                                                                           \
      SAVE;                                                                                                            \
      huffman_fill_slowly(cinfo, self);                                                                                \
      LOAD;                                                                                                            \
    }                                                                                                                  \
  } while (0)

#define SAVE                                                                                                           \
  do {                                                                                                                 \
    self->bits = bits, self->valid = valid;                                                                            \
    src->bytes_in_buffer -= (size_t)(next - src->next_input_byte);                                                     \
    src->next_input_byte = next;                                                                                       \
  } while (0)

#define LOAD                                                                                                           \
  do {                                                                                                                 \
    bits = self->bits, valid = self->valid;                                                                            \
    next = src->next_input_byte;                                                                                       \
    /* Last place to read eight bytes at once; none once a marker has been met. */                                     \
    last = cinfo->unread_marker == 0 && src->bytes_in_buffer >= 8 ? next + src->bytes_in_buffer - 8 : NULL;            \
  } while (0)

#define TAKE                                                                                                           \
  do {                                                                                                                 \
    bits <<= entry & 63;                                                                                               \
    valid -= (int)(entry & 63);                                                                                        \
  } while (0)

/* Which coefficients are stored. */
enum { KEEP_NONE, KEEP_NEEDED, KEEP_ALL };

static inline __attribute__((always_inline)) void huffman_mcu(j_decompress_ptr cinfo, huffman_decoder *self,
                                                              JBLOCKROW *blocks, const int kept) {
  struct jpeg_source_mgr *src = cinfo->src;
  uint64_t bits;
  int valid;
  const JOCTET *next, *last;
  LOAD;
  for (int b = 0; b < cinfo->blocks_in_MCU; b++) {
    const huffman_table *table = self->block_dc[b];
    uint32_t entry, k = 0;
    JCOEF *block = kept ? *blocks[b] : NULL;
    const int keep = kept == KEEP_ALL || (kept == KEEP_NEEDED && !self->block_is_dc[b]);
    int32_t *dc = &self->dc[self->block_component[b]];

    FILL;
    entry = table->look[bits >> (64 - LOOK_BITS)];
    if (__builtin_expect(entry & LOOK_MORE, 0))
      entry = huffman_look_further(cinfo, table, entry, bits);
    TAKE;
    *dc = (int32_t)((uint32_t)*dc + (uint32_t)(int16_t)(entry >> 16));
    if (kept)
      block[0] = (JCOEF)*dc;

    table = self->block_ac[b];
    do {
      FILL;
      for (int i = 0; i < LOOKS_A_FILL; i++) {
        entry = (keep ? table->look : table->pass)[bits >> (64 - LOOK_BITS)];
        if (!keep && __builtin_expect(k + (entry >> 16) >= DCTSIZE2 - 1, 0))
          entry = table->look[bits >> (64 - LOOK_BITS)];
        if (__builtin_expect(entry & LOOK_MORE, 0)) {
          FILL;
          entry = huffman_look_further(cinfo, table, entry, bits);
          i = LOOKS_A_FILL;
        }
        TAKE;
        k += entry >> 8 & 0xFF;
        /* The end of the block writes a zero where nothing has been written yet: cheaper than a test. */
        if (keep)
          block[zigzag[k]] = (JCOEF)(entry >> 16);
        if (k >= DCTSIZE2 - 1)
          break;
      }
    } while (k < DCTSIZE2 - 1);
  }
  SAVE;
  if (self->valid < 0)
    huffman_out_of_data(cinfo, self);
}

#undef FILL
#undef SAVE
#undef LOAD
#undef TAKE

static void huffman_mcu_keep(j_decompress_ptr cinfo, huffman_decoder *self, JBLOCKROW *blocks) {
  huffman_mcu(cinfo, self, blocks, KEEP_ALL);
}

static void huffman_mcu_keep_needed(j_decompress_ptr cinfo, huffman_decoder *self, JBLOCKROW *blocks) {
  huffman_mcu(cinfo, self, blocks, KEEP_NEEDED);
}

static void huffman_mcu_pass(j_decompress_ptr cinfo, huffman_decoder *self, JBLOCKROW *blocks) {
  huffman_mcu(cinfo, self, NULL, KEEP_NONE);
}

#if defined(__x86_64__)
/* With BMI2, shifts by a variable amount are one instruction instead of three. */
__attribute__((target("bmi,bmi2"))) static void huffman_mcu_keep_bmi2(j_decompress_ptr cinfo, huffman_decoder *self,
                                                                      JBLOCKROW *blocks) {
  huffman_mcu(cinfo, self, blocks, KEEP_ALL);
}

__attribute__((target("bmi,bmi2"))) static void huffman_mcu_keep_needed_bmi2(j_decompress_ptr cinfo,
                                                                             huffman_decoder *self,
                                                                             JBLOCKROW *blocks) {
  huffman_mcu(cinfo, self, blocks, KEEP_NEEDED);
}

__attribute__((target("bmi,bmi2"))) static void huffman_mcu_pass_bmi2(j_decompress_ptr cinfo, huffman_decoder *self,
                                                                      JBLOCKROW *blocks) {
  huffman_mcu(cinfo, self, NULL, KEEP_NONE);
}
#endif

/* A restart marker is due. Returns FALSE if there are no more bytes. */
static boolean huffman_restart(j_decompress_ptr cinfo, huffman_decoder *self) {
  self->odd |= self->valid >= 8;
  cinfo->marker->discarded_bytes += (unsigned int)self->valid / 8;
  self->valid = 0;
  self->bits = 0;
  if (!(*cinfo->marker->read_restart_marker)(cinfo))
    return FALSE;
  memset(self->dc, 0, sizeof self->dc);
  self->restarts_to_go = cinfo->restart_interval;
  if (cinfo->unread_marker == 0)
    cinfo->entropy->insufficient_data = FALSE;
  return TRUE;
}

/* Whether the entry points are those of an image with as many columns. */
static int huffman_entries_fit(j_decompress_ptr cinfo, const wf_entries *entries) {
  return entries->points && entries->step > 0 &&
         entries->a_row == (cinfo->MCUs_per_row + entries->step - 1) / entries->step;
}

/* Goes to an entry point. The MCU after it is due. */
static int huffman_enter(j_decompress_ptr cinfo, huffman_decoder *self, const wf_entry_point *point) {
  size_t at = point->bit >> 3;
  uint32_t taken = point->bit & 7;
  self->bits = 0;
  self->valid = 0;
  if (at + 2 > self->len_bytes)
    return FALSE;
  if (taken) {
    self->bits = (uint64_t)self->bytes[at] << (56 + taken);
    self->valid = 8 - (int)taken;
    at += self->bytes[at] == 0xFF ? 2 : 1;
  }
  cinfo->src->next_input_byte = self->bytes + at;
  cinfo->src->bytes_in_buffer = self->len_bytes - at;
  cinfo->unread_marker = 0;
  cinfo->entropy->insufficient_data = FALSE;
  for (int c = 0; c < MAX_COMPS_IN_SCAN; c++)
    self->dc[c] = point->dc[c];
  return TRUE;
}

/*
 * Records where the next MCU begins. Entry points are only for data in which each byte has a meaning, because bytes are
 * counted backwards here, and data between two points are read without looking for markers. Other data are legal but
 * rare, and are always decoded from the front.
 */
static void huffman_learn(j_decompress_ptr cinfo, huffman_decoder *self) {
  const JOCTET *first = self->bytes, *end = first + self->len_bytes, *at = cinfo->src->next_input_byte;
  if (self->learned_points > (size_t)self->learned.rows * self->learned.a_row)
    goto cannot; /* there is no room */
  if (cinfo->entropy->insufficient_data || self->valid < 0 || at < first + 2 || at > end)
    goto cannot; /* the bytes after the end are no part of the file */
  if (self->odd)
    goto cannot;
  if (cinfo->unread_marker != 0)
    at -= 2;
  else if (self->valid == 0 && at > first + 2 && at[-3] == 0xFF && at[-2] == 0xFF)
    goto cannot; /* libjpeg has read a marker after a fill byte */
  for (int back = (self->valid + 7) / 8; back > 0; back--) {
    if (at < first + 2)
      goto cannot;
    at--;
    at -= at[0] == 0 && at[-1] == 0xFF;
  }
  wf_entry_point *point = &self->learned.points[self->learned_points++];
  point->bit = (uint32_t)(8 * (at - first) + (8 - self->valid % 8) % 8);
  for (int c = 0; c < MAX_COMPS_IN_SCAN; c++) {
    point->dc[c] = (int16_t)self->dc[c];
    if (point->dc[c] != self->dc[c])
      goto cannot;
  }
  self->next_learned += self->learned.step;
  if (self->next_learned >= cinfo->MCUs_per_row)
    self->next_learned = 0;
  return;
cannot:
  self->learned.points = NULL;
}

/* Decodes an MCU of a row whose entry points are known. */
static int huffman_known_mcu(j_decompress_ptr cinfo, huffman_decoder *self, JBLOCKROW *blocks, JDIMENSION column) {
  JDIMENSION row = cinfo->input_iMCU_row, first = cinfo->master->first_iMCU_col;
  JDIMENSION entry = first / self->known.step;
  if (row >= self->known.rows)
    return FALSE;
  if (column < entry * self->known.step)
    return TRUE;
  if (column == entry * self->known.step &&
      !huffman_enter(cinfo, self, &self->known.points[row * self->known.a_row + entry]))
    return FALSE;
  (*(column < first ? self->pass : self->keep))(cinfo, self, blocks);
  return TRUE;
}

/* Decodes one MCU. Without blocks, or outside of the wanted columns, only walks through it. Returns FALSE if there are
 * no more bytes, or no entry point for it. */
static boolean huffman_decode_mcu(j_decompress_ptr cinfo, huffman_decoder *self, JBLOCKROW *blocks) {
  JDIMENSION column = self->column;
  self->column = column + 1 < cinfo->MCUs_per_row ? column + 1 : 0;
  if (self->known.points) {
    if (blocks && column <= cinfo->master->last_iMCU_col && !huffman_known_mcu(cinfo, self, blocks, column)) {
      self->unprepared = 1;
      return FALSE;
    }
    return TRUE;
  }
  if (cinfo->restart_interval) {
    if (self->restarts_to_go == 0 && !huffman_restart(cinfo, self))
      return FALSE;
    self->restarts_to_go--;
  }
  if (self->learned.points && column == self->next_learned)
    huffman_learn(cinfo, self);
  if (cinfo->entropy->insufficient_data)
    return TRUE;
  if (blocks && column >= cinfo->master->first_iMCU_col && column <= cinfo->master->last_iMCU_col)
    (*self->keep)(cinfo, self, blocks);
  else
    (*self->pass)(cinfo, self, NULL);
  return TRUE;
}

/* Call this when libjpeg has started the single scan of a baseline image, and so has checked its tables. */
static void huffman_start(j_decompress_ptr cinfo, huffman_decoder *self) {
  int dc_made = 0, ac_made = 0;
  const int all = LEAST_BLOCK_SAMPLES(cinfo) > 1;
  self->keep = all ? huffman_mcu_keep : huffman_mcu_keep_needed;
  self->pass = huffman_mcu_pass;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("bmi2")) {
    self->keep = all ? huffman_mcu_keep_bmi2 : huffman_mcu_keep_needed_bmi2;
    self->pass = huffman_mcu_pass_bmi2;
  }
#endif
  self->bits = 0;
  self->valid = 0;
  self->column = 0;
  self->odd = 0;
  self->filled = 0;
  self->learned_points = 0;
  self->next_learned = 0;
  self->restarts_to_go = cinfo->restart_interval;
  memset(self->dc, 0, sizeof self->dc);
  for (int b = 0; b < cinfo->blocks_in_MCU; b++) {
    const jpeg_component_info *component = cinfo->cur_comp_info[cinfo->MCU_membership[b]];
    int dc = component->dc_tbl_no, ac = component->ac_tbl_no;
    if (!(dc_made >> dc & 1))
      huffman_table_make(&self->dc_tables[dc], cinfo->dc_huff_tbl_ptrs[dc], 0);
    if (!(ac_made >> ac & 1))
      huffman_table_make(&self->ac_tables[ac], cinfo->ac_huff_tbl_ptrs[ac], 1);
    dc_made |= 1 << dc;
    ac_made |= 1 << ac;
    self->block_component[b] = cinfo->MCU_membership[b];
    self->block_is_dc[b] = BLOCK_SAMPLES(component) == 1;
    self->block_dc[b] = &self->dc_tables[dc];
    self->block_ac[b] = &self->ac_tables[ac];
  }
}

#endif
