/*
 * Decodes a rectangle of a JPEG image with libjpeg to rows of four bytes a pixel: red, green, blue, 255.
 *
 * libjpeg reports errors by a callback that must not return. The callback here ends in a longjmp. No Rust frame is ever
 * unwound or jumped over, because each function called from Rust sets its own jump target and all frames in between are
 * C.
 */

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jconfig.h>
#define JPEG_INTERNALS /* for the entropy decoder's interface */
#include <jpeglib.h>
#include <jerror.h>

/* A place where decoding can begin. The Rust side has the same layout. */
typedef struct {
  uint32_t bit;  /* the next MCU's first bit: 8 times its byte's offset in the file, plus its place in that byte */
  int16_t dc[4]; /* each component's last DC coefficient */
} wf_entry_point;

/* Entry points of an image, row by row of MCUs, every `step` MCUs, starting with the first of a row. */
typedef struct {
  wf_entry_point *points;
  uint32_t rows, step, a_row;
} wf_entries;

/* Decodes a row of MCUs, from entry points to samples. Returns FALSE if it cannot. */
typedef int32_t (*wf_decode_row)(void *context, uint32_t row, uint32_t first_column, uint32_t columns,
                                 JSAMPIMAGE planes);

/* Converts a row of luma and chroma to pixels of four bytes. */
typedef void (*wf_convert)(const uint8_t *luma, const uint8_t *blue, const uint8_t *red, uint8_t *out, uint32_t width);

/* Samples a side that libjpeg makes of a block: 8, or fewer at a smaller scale. */
#if JPEG_LIB_VERSION >= 70
#define BLOCK_SAMPLES(of) ((of)->DCT_h_scaled_size)
#define LEAST_BLOCK_SAMPLES(cinfo) ((cinfo)->min_DCT_h_scaled_size)
#else
#define BLOCK_SAMPLES(of) ((of)->DCT_scaled_size)
#define LEAST_BLOCK_SAMPLES(cinfo) ((cinfo)->min_DCT_scaled_size)
#endif

#include "idct.h"
#if defined(__GNUC__) || defined(__clang__)
#include "huffman.h"
#include "progressive.h"
#define OWN_HUFFMAN 1
#else
#define OWN_HUFFMAN 0
#endif

/* A call's status. The Rust side has the same numbers. */
enum {
  WF_OK = 0,
  WF_FAILED = 1,      /* libjpeg gave up; its message is kept */
  WF_MISSING = 2,     /* strict mode: pixels are missing or wrong; libjpeg's warning is kept */
  WF_HEADER = 3,      /* the header ends early or is not the one that was probed */
  WF_NO_MEMORY = 4,
  WF_UNPREPARED = 5,  /* entry points were given, but do not suffice for the needed part */
  WF_UNUSUAL = 6      /* the data are such that libjpeg's own entropy decoder (`plain`) must read them */
};

enum {
  ROWS_A_CALL = 16,   /* libjpeg hands out at most one row group (1 to 4 rows) a call */
  SCANS_MAX = 500     /* a progressive image has about ten scans; each costs a pass over all coefficients */
};

/* One call's work; the Rust side has the same layout. */
typedef struct {
  const uint8_t *bytes;
  size_t len_bytes;
  wf_entries known;                   /* known entry points; no points if none are known */
  wf_entries learned;                 /* room for all of the image's points, and one more; no points if not wanted */
  wf_decode_row decode_row;           /* decodes from the known entry points; or null */
  void *row_context;
  wf_convert convert;                 /* replaces libjpeg's conversion of colors; or null */
  uint32_t image_width, image_height; /* as probed; the stream must agree */
  uint32_t scale_denom;               /* 1, 2, 4 or 8: the image is decoded at 1 / scale_denom of its size */
  uint32_t x, y, width, height;       /* the rectangle, inside the image at that size */
  int32_t strict;                     /* missing pixels are an error */
  int32_t to_end;                     /* decode all entropy-coded data, so that missing ones are noticed */
  int32_t learn_all;                  /* go on to the last entry point */
  uint32_t learned_rows;              /* rows of MCUs whose points are in `learned`, with the one after them: only the
                                         others are learned, and no pixel is decoded */
  int32_t plain;                      /* use libjpeg's own entropy decoder */
  int32_t portable;                   /* use libjpeg's inverse DCT in C, against which its assembler is tested */
  uint8_t *out;                       /* height rows of width pixels of four bytes */
  size_t stride_bytes;
} wf_job;

typedef struct {
  struct jpeg_decompress_struct cinfo;
  struct jpeg_error_mgr errors;
  struct jpeg_source_mgr source;
  struct jpeg_progress_mgr progress;
  jmp_buf failed;
  const wf_job *job;
  int status;         /* returned after a jump */
  int strict;
  int ran_dry;        /* number of times that libjpeg asked for bytes after the end */
  int started;        /* the header has been read and the rows below are being made */
  int complete;       /* the rectangle is complete; the rest is no part of it */
  uint32_t rows_done; /* rows of the rectangle that are complete */
  inverse_DCT_method_ptr idct; /* libjpeg's inverse DCT, for blocks within the common range */
  char message[JMSG_LENGTH_MAX];
#if OWN_HUFFMAN
  huffman_decoder huffman;
  int has_own_scans; /* `progressive` decodes the image's scans */
  progressive_decoder progressive;
#endif
} wf_decoder;

wf_decoder *wf_jpeg_decoder_new(void);
void wf_jpeg_decoder_free(wf_decoder *self);
const char *wf_jpeg_decoder_message(const wf_decoder *self);
int wf_jpeg_decode(wf_decoder *self, const wf_job *job);
uint32_t wf_jpeg_learned(const wf_decoder *self);
int wf_jpeg_warned(const wf_decoder *self);
int wf_jpeg_has_own_scans(const wf_decoder *self);
int wf_jpeg_simd(void);
void wf_jpeg_inks_to_rgb(uint8_t *row, uint32_t width);

/* ---- errors and warnings ---- */

static void fail(wf_decoder *self, int status) {
  self->status = status;
  longjmp(self->failed, 1);
}

static void on_error(j_common_ptr cinfo) {
  wf_decoder *self = cinfo->client_data;
  (*cinfo->err->format_message)(cinfo, self->message);
  fail(self, cinfo->err->msg_code == JERR_OUT_OF_MEMORY ? WF_NO_MEMORY : WF_FAILED);
}

/* Level -1 is a warning: the data are corrupt, but libjpeg can go on. */
static void on_message(j_common_ptr cinfo, int level) {
  wf_decoder *self = cinfo->client_data;
  if (level >= 0)
    return;
  cinfo->err->num_warnings++;
  switch (cinfo->err->msg_code) {
  case JWRN_HIT_MARKER:
  case JWRN_HUFF_BAD_CODE:
  case JWRN_MUST_RESYNC:
    if (self->strict) {
      (*cinfo->err->format_message)(cinfo, self->message);
      fail(self, WF_MISSING);
    }
    break;
  default: /* stray bytes between segments, odd JFIF or Adobe markers: no pixel is missing */
    break;
  }
}

#if OWN_HUFFMAN
static progressive_decoder *progressive_of(j_decompress_ptr cinfo) {
  wf_decoder *self = cinfo->client_data;
  return &self->progressive;
}

static void progressive_give_up(j_decompress_ptr cinfo) { fail(cinfo->client_data, WF_UNUSUAL); }

static void start_own_scans(wf_decoder *self) {
  const wf_job *job = self->job;
  const JDIMENSION scale = job->scale_denom;
  /* Upsampling reads neighbors of the rectangle's samples, and windows begin at whole MCUs (`choose_window`). */
  const JDIMENSION across = 2 * DCTSIZE * (JDIMENSION)self->cinfo.max_h_samp_factor;
  const JDIMENSION down = 2 * DCTSIZE * (JDIMENSION)self->cinfo.max_v_samp_factor;
  const JDIMENSION left = job->x * scale, top = job->y * scale;
  progressive_start(&self->cinfo, left > across ? left - across : 0, top > down ? top - down : 0,
                    left + job->width * scale + across, top + job->height * scale + down);
}
#endif

static void on_progress(j_common_ptr cinfo) {
  wf_decoder *self = cinfo->client_data;
  if (self->cinfo.input_scan_number > SCANS_MAX) {
    snprintf(self->message, sizeof self->message, "more than %d scans", (int)SCANS_MAX);
    fail(self, WF_FAILED);
  }
#if OWN_HUFFMAN
  /* libjpeg has prepared the first scan, and reads it next. */
  if (self->has_own_scans && !self->progressive.start_pass)
    start_own_scans(self);
#endif
}

/* ---- the bytes ---- */

static void source_start(j_decompress_ptr cinfo) {}
static void source_end(j_decompress_ptr cinfo) {}

/* After the last byte, supplies one end-of-image marker, which ends the image; then nothing, and libjpeg suspends. */
static boolean source_fill(j_decompress_ptr cinfo) {
  static const JOCTET end_of_image[2] = { 0xFF, JPEG_EOI };
  wf_decoder *self = cinfo->client_data;
  if (self->ran_dry++)
    return FALSE;
  cinfo->src->next_input_byte = end_of_image;
  cinfo->src->bytes_in_buffer = sizeof end_of_image;
  return TRUE;
}

static void source_skip(j_decompress_ptr cinfo, long count) {
  struct jpeg_source_mgr *src = cinfo->src;
  if (count <= 0)
    return;
  while ((size_t)count > src->bytes_in_buffer) {
    count -= (long)src->bytes_in_buffer;
    src->next_input_byte += src->bytes_in_buffer;
    src->bytes_in_buffer = 0;
    if (!source_fill(cinfo))
      return;
  }
  src->next_input_byte += count;
  src->bytes_in_buffer -= (size_t)count;
}

/* ---- the handle ---- */

wf_decoder *wf_jpeg_decoder_new(void) {
  wf_decoder *self = calloc(1, sizeof *self);
  if (!self)
    return NULL;
  self->cinfo.err = jpeg_std_error(&self->errors);
  self->errors.error_exit = on_error;
  self->errors.emit_message = on_message;
  self->cinfo.client_data = self;
  self->source.init_source = source_start;
  self->source.fill_input_buffer = source_fill;
  self->source.skip_input_data = source_skip;
  self->source.resync_to_restart = jpeg_resync_to_restart;
  self->source.term_source = source_end;
  self->progress.progress_monitor = on_progress;
  return self;
}

void wf_jpeg_decoder_free(wf_decoder *self) { free(self); }

const char *wf_jpeg_decoder_message(const wf_decoder *self) { return self->message; }

/* ---- pixels ---- */

/* Pillow's arithmetic: 255 - (a * b / 255, rounded), not below 0 after b's complement is subtracted. */
static inline uint8_t ink(uint32_t stored, uint32_t light) {
  uint32_t product = (255 - stored) * light + 128;
  uint32_t taken = ((product >> 8) + product) >> 8;
  return (uint8_t)(light > taken ? light - taken : 0);
}

/* Converts four inks to red, green, blue, 255, in place. The inks are stored inverted, with 255 for no ink, as Adobe's
 * programs do and as Pillow assumes for every JPEG. */
void wf_jpeg_inks_to_rgb(uint8_t *row, uint32_t width) {
  for (uint32_t i = 0; i < width; i++, row += 4) {
    uint32_t light = row[3];
    row[0] = ink(row[0], light);
    row[1] = ink(row[1], light);
    row[2] = ink(row[2], light);
    row[3] = 255;
  }
}

/* The columns and rows to decode, so that those of the rectangle equal a full decode's. */
typedef struct {
  JDIMENSION left, width; /* columns that libjpeg returns; left is moved to an MCU's edge */
  JDIMENSION top;         /* rows to skip */
} window;

/*
 * Whether libjpeg smooths the image. It smooths progressive images with incomplete AC coefficients, over a distance of
 * two blocks, with special cases at the edges of the decoded part.
 */
static int is_smoothed(j_decompress_ptr cinfo) {
  if (!cinfo->progressive_mode || !cinfo->coef_bits)
    return 0;
  for (int component = 0; component < cinfo->num_components; component++)
    for (int coefficient = 1; coefficient < DCTSIZE2; coefficient++)
      if (cinfo->coef_bits[component][coefficient] != 0)
        return 1;
  return 0;
}

static window choose_window(j_decompress_ptr cinfo, const wf_job *job) {
  window w = { 0, cinfo->output_width, job->y };
  if (is_smoothed(cinfo)) {
    w.top = 0;
    return w;
  }
  /* Interpolation needs one chroma sample on either side, and treats the last sample of the decoded columns as the
   * image's edge. One more pixel on the left reaches the sample before. On the right, whole MCUs make libjpeg choose
   * the same upsampling routine as for the full width. */
  JDIMENSION mcu = (JDIMENSION)(cinfo->max_h_samp_factor * LEAST_BLOCK_SAMPLES(cinfo));
  JDIMENSION margin = cinfo->max_h_samp_factor > 1 ? 1 : 0;
  JDIMENSION left = job->x > margin ? job->x - margin : 0;
  JDIMENSION right = job->x + job->width + margin;
  left -= left % mcu;
  right += (mcu - right % mcu) % mcu;
  if (right > cinfo->output_width)
    right = cinfo->output_width;
  /* For a window of a single chroma sample, libjpeg would choose another routine. */
  if (right - left <= (JDIMENSION)cinfo->max_h_samp_factor && left > 0)
    left -= mcu;
  w.left = left;
  w.width = right - left;
  return w;
}

#if OWN_HUFFMAN
static boolean decode_mcu(j_decompress_ptr cinfo, JBLOCKROW *blocks) {
  wf_decoder *self = cinfo->client_data;
  boolean decoded = huffman_decode_mcu(cinfo, &self->huffman, blocks);
  if (self->huffman.unprepared)
    fail(self, WF_UNPREPARED);
  if (self->huffman.filled)
    fail(self, WF_UNUSUAL);
  return decoded;
}
#endif

#if OWN_HUFFMAN
/* Learns the entry points of the rows after those whose points are known. */
static int learn_rest(wf_decoder *self, uint32_t known_rows) {
  j_decompress_ptr cinfo = &self->cinfo;
  huffman_decoder *huffman = &self->huffman;
  const size_t mcus = (size_t)cinfo->total_iMCU_rows * cinfo->MCUs_per_row, interval = cinfo->restart_interval;
  size_t mcu = (size_t)known_rows * cinfo->MCUs_per_row;

  huffman->learned_points = known_rows * huffman->learned.a_row;
  if (known_rows >= huffman->learned.rows ||
      !huffman_enter(cinfo, huffman, &huffman->learned.points[huffman->learned_points]))
    return WF_UNPREPARED;
  if (interval) {
    /* The last point of the known rows comes before a restart that is due. */
    huffman->restarts_to_go = (uint32_t)((interval - mcu % interval) % interval);
    cinfo->marker->next_restart_num = (int)((mcu - 1) / interval % 8);
  }
  for (; mcu < mcus; mcu++)
    if (!decode_mcu(cinfo, NULL))
      return WF_MISSING;
  if (huffman->learned.points)
    huffman_learn(cinfo, huffman); /* where the last MCU ends */
  return WF_OK;
}

/* Replaces libjpeg's conversion of an MCU's codes to samples, if all needed entry points are known. */
static int decode_row(j_decompress_ptr cinfo, JSAMPIMAGE planes) {
  wf_decoder *self = cinfo->client_data;
  JDIMENSION first = cinfo->master->first_iMCU_col, columns = cinfo->master->last_iMCU_col - first + 1;
  if (!(*self->job->decode_row)(self->job->row_context, cinfo->input_iMCU_row, first, columns, planes))
    fail(self, WF_UNPREPARED);
  cinfo->output_iMCU_row++;
  if (++cinfo->input_iMCU_row < cinfo->total_iMCU_rows)
    return JPEG_ROW_COMPLETED;
  (*cinfo->inputctl->finish_input_pass)(cinfo);
  return JPEG_SCAN_COMPLETED;
}
#endif

static void idct_checked(j_decompress_ptr cinfo, jpeg_component_info *component, JCOEFPTR block, JSAMPARRAY rows,
                         JDIMENSION column) {
  const wf_decoder *self = cinfo->client_data;
  const ISLOW_MULT_TYPE *quant = component->dct_table;
  if (idct_is_tame(block, quant))
    (*self->idct)(cinfo, component, block, rows, column);
  else
    idct_saturating(block, quant, rows, column);
}

/* Makes absurd blocks decode as in the assembler for x86. Does nothing where libjpeg runs this assembler, and at smaller
 * scales, which have other transforms. */
static void choose_idct(j_decompress_ptr cinfo, int portable) {
  wf_decoder *self = cinfo->client_data;
  for (int component = 0; component < cinfo->num_components; component++) {
    inverse_DCT_method_ptr *method = &cinfo->idct->inverse_DCT[component];
    if (BLOCK_SAMPLES(&cinfo->comp_info[component]) != DCTSIZE)
      continue;
    if (portable)
      *method = jpeg_idct_islow;
    if (*method == jpeg_idct_islow || !IDCT_ASSEMBLER_SATURATES) {
      self->idct = *method;
      *method = idct_checked;
    }
  }
}

static void convert_rows(j_decompress_ptr cinfo, JSAMPIMAGE planes, JDIMENSION row, JSAMPARRAY out, int rows) {
  const wf_decoder *self = cinfo->client_data;
  for (int i = 0; i < rows; i++, row++)
    (*self->job->convert)(planes[0][row], planes[1][row], planes[2][row], out[i], cinfo->output_width);
}

static int decode(wf_decoder *self, const wf_job *job) {
  j_decompress_ptr cinfo = &self->cinfo;

  /* libjpeg keeps quantization and Huffman tables from one image to the next, and an image may lack its own. Only
   * with a new object does the result depend on the bytes alone. It costs a microsecond. */
  jpeg_create_decompress(cinfo);
  cinfo->src = &self->source;
  cinfo->progress = &self->progress;

  if (jpeg_read_header(cinfo, TRUE) != JPEG_HEADER_OK)
    return WF_HEADER;
  if (cinfo->image_width != job->image_width || cinfo->image_height != job->image_height)
    return WF_HEADER;
  cinfo->out_color_space = cinfo->num_components == 4 ? JCS_CMYK : JCS_EXT_RGBA;
  cinfo->dct_method = JDCT_ISLOW;
  cinfo->do_fancy_upsampling = TRUE;
  cinfo->scale_num = 1;
  cinfo->scale_denom = job->scale_denom;

  self->started = 1;
#if OWN_HUFFMAN
  self->has_own_scans = !job->plain && cinfo->progressive_mode && !cinfo->arith_code;
  self->progressive.start_pass = NULL;
#endif
  if (!jpeg_start_decompress(cinfo))
    return WF_MISSING;
  if (self->strict && self->ran_dry && jpeg_has_multiple_scans(cinfo)) {
    snprintf(self->message, sizeof self->message, "the data end after scan %d", cinfo->input_scan_number);
    return WF_MISSING;
  }
#if OWN_HUFFMAN
  if (self->has_own_scans && is_smoothed(cinfo))
    return WF_UNUSUAL; /* smoothing reads blocks that were not kept */
  if (!job->plain && !cinfo->progressive_mode && !cinfo->arith_code && !jpeg_has_multiple_scans(cinfo)) {
    self->huffman.bytes = job->bytes;
    self->huffman.len_bytes = job->len_bytes;
    self->huffman.known = job->known;
    if (job->known.points && !huffman_entries_fit(cinfo, &job->known))
      return WF_UNPREPARED;
    if (huffman_entries_fit(cinfo, &job->learned))
      self->huffman.learned = job->learned;
    if (job->decode_row)
      cinfo->coef->decompress_data = decode_row;
    else
      huffman_start(cinfo, &self->huffman);
    cinfo->entropy->decode_mcu = decode_mcu;
    if (job->learned_rows && self->huffman.learned.points)
      return learn_rest(self, job->learned_rows);
  }
#endif
  if (job->learned_rows)
    return WF_UNPREPARED;

  choose_idct(cinfo, job->portable);
  if (job->convert && cinfo->jpeg_color_space == JCS_YCbCr && cinfo->out_color_space == JCS_EXT_RGBA)
    cinfo->cconvert->color_convert = convert_rows;

  window w = choose_window(cinfo, job);
  if (w.width < cinfo->output_width)
    jpeg_crop_scanline(cinfo, &w.left, &w.width);

  const size_t shift_bytes = 4 * (size_t)(job->x - w.left), row_bytes = 4 * (size_t)job->width;
  const int direct = w.width == job->width;
  JSAMPROW rows[ROWS_A_CALL];
  JSAMPARRAY scratch =
      (*cinfo->mem->alloc_sarray)((j_common_ptr)cinfo, JPOOL_IMAGE, 4 * w.width + 16, ROWS_A_CALL);
  for (int i = 0; i < ROWS_A_CALL; i++)
    scratch[i] += 16;

  if (w.top > 0)
    jpeg_skip_scanlines(cinfo, w.top);
  for (JDIMENSION row = w.top; row < job->y; row++)
    if (jpeg_read_scanlines(cinfo, scratch, 1) == 0)
      return WF_MISSING;

  while (self->rows_done < job->height) {
    JDIMENSION want = job->height - self->rows_done, got;
    if (want > ROWS_A_CALL)
      want = ROWS_A_CALL;
    uint8_t *out = job->out + self->rows_done * job->stride_bytes;
    if (direct) {
      for (JDIMENSION i = 0; i < want; i++)
        rows[i] = out + i * job->stride_bytes;
      got = jpeg_read_scanlines(cinfo, rows, want);
    } else {
      got = jpeg_read_scanlines(cinfo, scratch, want);
      for (JDIMENSION i = 0; i < got; i++)
        memcpy(out + i * job->stride_bytes, scratch[i] + shift_bytes, row_bytes);
    }
    if (got == 0)
      return WF_MISSING;
    if (cinfo->out_color_space == JCS_CMYK)
      for (JDIMENSION i = 0; i < got; i++)
        wf_jpeg_inks_to_rgb(out + i * job->stride_bytes, job->width);
    self->rows_done += got;
  }

  if ((job->to_end || job->learn_all) && cinfo->output_scanline < cinfo->output_height) {
    /* Learning points is no reason to report damage below the rectangle. */
    self->complete = !job->to_end;
    /* Skipping up to the last row decodes the skipped rows; skipping the last row too would not. */
    jpeg_skip_scanlines(cinfo, cinfo->output_height - cinfo->output_scanline - 1);
    jpeg_read_scanlines(cinfo, scratch, 1);
  }
#if OWN_HUFFMAN
  if (self->huffman.learned.points && self->huffman.column == 0)
    huffman_learn(cinfo, &self->huffman); /* where the last MCU ends */
#endif
  return WF_OK;
}

int wf_jpeg_decode(wf_decoder *self, const wf_job *job) {
  int status;
  self->job = job;
  self->message[0] = 0;
  self->status = WF_FAILED;
  self->strict = job->strict;
  self->ran_dry = 0;
  self->started = 0;
  self->complete = 0;
  self->rows_done = 0;
#if OWN_HUFFMAN
  self->huffman.unprepared = 0;
  self->huffman.filled = 0;
  self->huffman.learned.points = NULL;
#endif
  self->errors.num_warnings = 0;
  self->source.next_input_byte = job->bytes;
  self->source.bytes_in_buffer = job->len_bytes;
  if (setjmp(self->failed) == 0)
    status = decode(self, job);
  else
    status = self->complete ? WF_OK : self->status;
  jpeg_destroy_decompress(&self->cinfo);

  if (!job->strict && self->started && (status == WF_FAILED || status == WF_MISSING)) {
    /* As in Pillow with LOAD_TRUNCATED_IMAGES, rows that were not reached are black. */
    for (uint32_t row = self->rows_done; row < job->height; row++) {
      uint8_t *out = job->out + row * job->stride_bytes;
      for (uint32_t i = 0; i < job->width; i++, out += 4) {
        out[0] = out[1] = out[2] = 0;
        out[3] = 255;
      }
    }
    status = WF_OK;
  }
  return status;
}

/* The number of entry points learned from the last image; 0 if its data were not as they should be. */
uint32_t wf_jpeg_learned(const wf_decoder *self) {
#if OWN_HUFFMAN
  if (self->huffman.learned.points && self->errors.num_warnings == 0)
    return self->huffman.learned_points;
#endif
  return 0;
}

/* Whether libjpeg has warned of the last image. */
int wf_jpeg_warned(const wf_decoder *self) { return self->errors.num_warnings != 0; }

/* Whether the last image's scans were not decoded by libjpeg's own entropy decoder. */
int wf_jpeg_has_own_scans(const wf_decoder *self) {
#if OWN_HUFFMAN
  return self->has_own_scans;
#else
  return 0;
#endif
}

/* Whether libjpeg was built with its assembler routines. */
int wf_jpeg_simd(void) {
#ifdef WITH_SIMD
  return 1;
#else
  return 0;
#endif
}
