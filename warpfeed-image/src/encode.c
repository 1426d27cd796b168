/*
 * Encodes rows of pixels (red, green, blue, an unused byte) as a JPEG file in memory with libjpeg, and converts JPEG
 * files to baseline with the same coefficients. decode/jpeg.c describes how errors are handled.
 */

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jconfig.h>
#include <jpeglib.h>
#include <jerror.h>

/* The Rust side has the same numbers. */
enum { WF_OK = 0, WF_FAILED = 1, WF_NO_MEMORY = 2 };
enum { COLOR_YCC = 0, COLOR_GRAY = 1, COLOR_CMYK = 2, COLOR_YCCK = 3, COLOR_RGB = 4 };

enum { SCANS_MAX = 500 }; /* as in decode/jpeg.c */

/* The Rust side has the same layout. */
typedef struct {
  const uint8_t *pixels; /* height rows of width pixels of four bytes */
  uint32_t width, height;
  int32_t quality, h, v; /* h, v: sampling factors of the first (and fourth) component */
  int32_t progressive, restart_rows, color;
  const uint8_t *exif; /* content of the APP1 segment, or null */
  size_t exif_len_bytes;
} wf_encode_job;

int wf_jpeg_encode(const wf_encode_job *job, uint8_t **out, size_t *out_len_bytes, char *message, size_t message_bytes);
int wf_jpeg_to_baseline(const uint8_t *bytes, size_t len_bytes, int restarts, uint8_t **out, size_t *out_len_bytes,
                        char *message, size_t message_bytes);
void wf_jpeg_encoded_free(uint8_t *bytes);

typedef struct {
  struct jpeg_compress_struct cinfo;
  struct jpeg_error_mgr errors;
  struct jpeg_destination_mgr destination;
  jmp_buf failed;
  uint8_t *bytes;
  size_t capacity_bytes;
  size_t len_bytes;
  uint8_t *row;
  int status; /* returned after a jump */
  char message[JMSG_LENGTH_MAX];
} encoder;

static void on_error(j_common_ptr cinfo) {
  encoder *self = cinfo->client_data;
  (*cinfo->err->format_message)(cinfo, self->message);
  self->status = cinfo->err->msg_code == JERR_OUT_OF_MEMORY ? WF_NO_MEMORY : WF_FAILED;
  longjmp(self->failed, 1);
}

static void on_message(j_common_ptr cinfo, int level) {}

static void grow(encoder *self, size_t used_bytes) {
  size_t capacity_bytes = self->capacity_bytes ? 2 * self->capacity_bytes : 65536;
  uint8_t *bytes = realloc(self->bytes, capacity_bytes);
  if (!bytes)
    ERREXIT1(&self->cinfo, JERR_OUT_OF_MEMORY, 0);
  self->bytes = bytes;
  self->capacity_bytes = capacity_bytes;
  self->destination.next_output_byte = bytes + used_bytes;
  self->destination.free_in_buffer = capacity_bytes - used_bytes;
}

static void destination_start(j_compress_ptr cinfo) { grow(cinfo->client_data, 0); }

static boolean destination_full(j_compress_ptr cinfo) {
  encoder *self = cinfo->client_data;
  grow(self, self->capacity_bytes);
  return TRUE;
}

static void destination_end(j_compress_ptr cinfo) {
  encoder *self = cinfo->client_data;
  self->len_bytes = self->capacity_bytes - self->destination.free_in_buffer;
}

/* Converts red, green, blue to inverted inks: as much black as possible, and colors relative to the remaining light. */
static void rgb_to_inks(const uint8_t *in, uint8_t *out, uint32_t width) {
  for (uint32_t i = 0; i < width; i++, in += 4, out += 4) {
    uint32_t light = in[0] > in[1] ? in[0] : in[1];
    if (in[2] > light)
      light = in[2];
    for (int c = 0; c < 3; c++)
      out[c] = light ? (uint8_t)((255u * in[c] + light / 2) / light) : 255;
    out[3] = (uint8_t)light;
  }
}

static void encode(encoder *self, const wf_encode_job *job) {
  j_compress_ptr cinfo = &self->cinfo;
  const int inks = job->color == COLOR_CMYK || job->color == COLOR_YCCK;

  jpeg_create_compress(cinfo);
  self->destination.init_destination = destination_start;
  self->destination.empty_output_buffer = destination_full;
  self->destination.term_destination = destination_end;
  cinfo->dest = &self->destination;

  cinfo->image_width = job->width;
  cinfo->image_height = job->height;
  cinfo->input_components = 4;
  cinfo->in_color_space = inks ? JCS_CMYK : JCS_EXT_RGBX;
  /* Otherwise mozjpeg spends time on making files smaller: trellis quantization, scan search, other tables. */
  jpeg_c_set_int_param(cinfo, JINT_COMPRESS_PROFILE, JCP_FASTEST);
  jpeg_set_defaults(cinfo);
  switch (job->color) {
  case COLOR_GRAY: jpeg_set_colorspace(cinfo, JCS_GRAYSCALE); break;
  case COLOR_CMYK: jpeg_set_colorspace(cinfo, JCS_CMYK); break;
  case COLOR_YCCK: jpeg_set_colorspace(cinfo, JCS_YCCK); break;
  case COLOR_RGB: jpeg_set_colorspace(cinfo, JCS_RGB); break;
  default: jpeg_set_colorspace(cinfo, JCS_YCbCr); break;
  }
  jpeg_set_quality(cinfo, job->quality, TRUE);
  cinfo->dct_method = JDCT_ISLOW;
  for (int c = 0; c < cinfo->num_components; c++) {
    cinfo->comp_info[c].h_samp_factor = c == 0 || c == 3 ? job->h : 1;
    cinfo->comp_info[c].v_samp_factor = c == 0 || c == 3 ? job->v : 1;
  }
  cinfo->restart_in_rows = job->restart_rows;
  if (job->progressive)
    jpeg_simple_progression(cinfo);

  jpeg_start_compress(cinfo, TRUE);
  if (job->exif)
    jpeg_write_marker(cinfo, JPEG_APP0 + 1, job->exif, (unsigned int)job->exif_len_bytes);
  while (cinfo->next_scanline < cinfo->image_height) {
    const uint8_t *row = job->pixels + 4 * (size_t)job->width * cinfo->next_scanline;
    JSAMPROW rows[1] = { (JSAMPROW)row };
    if (inks) {
      rgb_to_inks(row, self->row, job->width);
      rows[0] = self->row;
    }
    jpeg_write_scanlines(cinfo, rows, 1);
  }
  jpeg_finish_compress(cinfo);
}

/* No variable of this frame changes after setjmp, so the jump loses nothing. */
static int encode_or_fail(encoder *self, const wf_encode_job *job) {
  self->cinfo.err = jpeg_std_error(&self->errors);
  self->errors.error_exit = on_error;
  self->errors.emit_message = on_message;
  self->cinfo.client_data = self;
  if (setjmp(self->failed))
    return self->status;
  encode(self, job);
  return WF_OK;
}

/* Hands the written bytes over to *out, or the message to the caller. */
static void hand_over(encoder *self, int status, uint8_t **out, size_t *out_len_bytes, char *message,
                      size_t message_bytes) {
  if (status == WF_OK) {
    *out = self->bytes;
    *out_len_bytes = self->len_bytes;
  } else {
    snprintf(message, message_bytes, "%s", self->message);
    free(self->bytes);
  }
}

/* Returns WF_OK, and the caller frees *out; or another status, WF_FAILED with a message. */
int wf_jpeg_encode(const wf_encode_job *job, uint8_t **out, size_t *out_len_bytes, char *message, size_t message_bytes) {
  int status = WF_NO_MEMORY;
  encoder *self = calloc(1, sizeof *self);
  if (!self)
    return status;
  self->row = malloc(4 * (size_t)job->width);
  if (self->row) {
    status = encode_or_fail(self, job);
    jpeg_destroy_compress(&self->cinfo);
  }
  hand_over(self, status, out, out_len_bytes, message, message_bytes);
  free(self->row);
  free(self);
  return status;
}

void wf_jpeg_encoded_free(uint8_t *bytes) { free(bytes); }

/* ---- to baseline, without loss ---- */

typedef struct {
  encoder out;
  struct jpeg_decompress_struct in;
  struct jpeg_error_mgr in_errors;
  struct jpeg_progress_mgr progress;
} transcoder;

/* Warnings about missing or wrong coefficients end the conversion, as they end a strict decode. */
static void on_warning(j_common_ptr cinfo, int level) {
  if (level >= 0)
    return;
  switch (cinfo->err->msg_code) {
  case JWRN_HIT_MARKER:
  case JWRN_HUFF_BAD_CODE:
  case JWRN_MUST_RESYNC:
  case JWRN_JPEG_EOF:
    on_error(cinfo);
    break;
  default:
    break;
  }
}

static void on_scan(j_common_ptr cinfo) {
  encoder *self = cinfo->client_data;
  if (((j_decompress_ptr)cinfo)->input_scan_number > SCANS_MAX) {
    snprintf(self->message, sizeof self->message, "more than %d scans", (int)SCANS_MAX);
    self->status = WF_FAILED;
    longjmp(self->failed, 1);
  }
}

static int starts_with(jpeg_saved_marker_ptr m, const char *start, unsigned int len) {
  return m->data_length >= len && !memcmp(m->data, start, len);
}

/* Copies all segments, such as EXIF, color profiles and comments. Skips those that libjpeg writes itself, and a row
 * index, whose rows are no longer there. */
static void copy_segments(transcoder *self) {
  j_compress_ptr out = &self->out.cinfo;
  for (jpeg_saved_marker_ptr m = self->in.marker_list; m; m = m->next) {
    if (out->write_JFIF_header && m->marker == JPEG_APP0 && starts_with(m, "JFIF", 5))
      continue;
    if (out->write_Adobe_marker && m->marker == JPEG_APP0 + 14 && starts_with(m, "Adobe", 5))
      continue;
    if (m->marker == JPEG_APP0 + 9 && starts_with(m, "warpfeed\0", 10))
      continue;
    jpeg_write_marker(out, m->marker, m->data, m->data_length);
  }
}

static void transcode(transcoder *self, const uint8_t *bytes, size_t len_bytes, int restarts) {
  j_decompress_ptr in = &self->in;
  j_compress_ptr out = &self->out.cinfo;

  jpeg_create_decompress(in);
  in->progress = &self->progress;
  jpeg_mem_src(in, bytes, len_bytes);
  jpeg_save_markers(in, JPEG_COM, 0xFFFF);
  for (int i = 0; i < 16; i++)
    jpeg_save_markers(in, JPEG_APP0 + i, 0xFFFF);
  jpeg_read_header(in, TRUE);
  jvirt_barray_ptr *coefficients = jpeg_read_coefficients(in);

  jpeg_create_compress(out);
  self->out.destination.init_destination = destination_start;
  self->out.destination.empty_output_buffer = destination_full;
  self->out.destination.term_destination = destination_end;
  out->dest = &self->out.destination;
  jpeg_c_set_int_param(out, JINT_COMPRESS_PROFILE, JCP_FASTEST);
  jpeg_copy_critical_parameters(in, out);
  out->optimize_coding = TRUE;
  if (restarts) {
    out->restart_in_rows = 1;
    /* The sampling factors of a single component only set the number of rows that are decoded at a time. */
    if (out->num_components == 1)
      out->comp_info[0].h_samp_factor = out->comp_info[0].v_samp_factor = 1;
  }
  jpeg_write_coefficients(out, coefficients);
  copy_segments(self);
  jpeg_finish_compress(out);
  jpeg_finish_decompress(in);
}

static int transcode_or_fail(transcoder *self, const uint8_t *bytes, size_t len_bytes, int restarts) {
  self->out.cinfo.err = jpeg_std_error(&self->out.errors);
  self->out.errors.error_exit = on_error;
  self->out.errors.emit_message = on_message;
  self->out.cinfo.client_data = &self->out;
  self->in.err = jpeg_std_error(&self->in_errors);
  self->in_errors.error_exit = on_error;
  self->in_errors.emit_message = on_warning;
  self->in.client_data = &self->out;
  self->progress.progress_monitor = on_scan;
  if (setjmp(self->out.failed))
    return self->out.status;
  transcode(self, bytes, len_bytes, restarts);
  return WF_OK;
}

/* Converts a JPEG to a baseline one with the same coefficients. If `restarts` is set, a restart marker follows each row
 * of MCUs. Returns like wf_jpeg_encode. */
int wf_jpeg_to_baseline(const uint8_t *bytes, size_t len_bytes, int restarts, uint8_t **out, size_t *out_len_bytes,
                        char *message, size_t message_bytes) {
  transcoder *self = calloc(1, sizeof *self);
  if (!self)
    return WF_NO_MEMORY;
  int status = transcode_or_fail(self, bytes, len_bytes, restarts);
  jpeg_destroy_compress(&self->out.cinfo);
  jpeg_destroy_decompress(&self->in);
  hand_over(&self->out, status, out, out_len_bytes, message, message_bytes);
  free(self);
  return status;
}
