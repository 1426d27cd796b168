/*
 * A stand-in for libnvjpeg, for tests: it keeps a log of what is created and destroyed, fails when told to, and "decodes"
 * to host memory. Its images are the bytes 'J', width, height, components, value.
 *
 * Compile with -DWITHOUT_OPTIONAL for one that exports only what every nvJPEG has, and with -DWITHOUT_DECODER for one
 * that lacks something of that.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int status;
typedef const unsigned char *bytes;
typedef struct object {
    bytes data;
    void *attached[2];
} object;
typedef struct {
    unsigned char *channel[4];
    size_t pitch[4];
} image;
enum { SUCCESS = 0, INVALID_PARAMETER = 2, BAD_JPEG = 3 };

static char events[1 << 16];
static char failing[64];
static int failing_status;

const char *fake_log(void) { return events; }

void fake_fail(const char *function, int with) {
    snprintf(failing, sizeof failing, "%s", function);
    failing_status = with;
}

static void log_event(const char *what) {
    strncat(events, what, sizeof events - strlen(events) - 2);
    strcat(events, "\n");
}

/* The status that a function was told to fail with, once. */
static status injected(const char *function) {
    if (strcmp(function, failing) != 0)
        return SUCCESS;
    failing[0] = 0;
    return failing_status;
}

#define BEGIN                                 \
    do {                                      \
        status injected_ = injected(__func__); \
        if (injected_)                        \
            return injected_;                 \
    } while (0)

static status make(const char *function, object **out) {
    status s = injected(function);
    if (s)
        return s;
    log_event(function);
    *out = calloc(1, sizeof(object));
    return SUCCESS;
}

/* Frees in any case, as a driver that reports an old fault would. */
static status destroy(const char *function, object *o) {
    log_event(function);
    free(o);
    return injected(function);
}

status nvjpegGetProperty(int which, int *value) {
    BEGIN;
    *value = (int[]){12, 3, 4}[which];
    return SUCCESS;
}
status nvjpegGetCudartProperty(int which, int *value) {
    *value = (int[]){12, 9, 1}[which];
    return SUCCESS;
}
status nvjpegCreateEx(int backend, void *device, void *pinned, unsigned flags, object **out) {
    char line[64];
    (void)device, (void)pinned;
    snprintf(line, sizeof line, "backend %d flags %u", backend, flags);
    log_event(line);
    return make(__func__, out);
}
status nvjpegDestroy(object *handle) { return destroy(__func__, handle); }
status nvjpegJpegStateCreate(object *handle, object **out) { (void)handle; return make(__func__, out); }
status nvjpegJpegStateDestroy(object *state) { return destroy(__func__, state); }
static int batch;
status nvjpegDecodeBatchedInitialize(object *handle, object *state, int size, int threads, int format) {
    (void)handle, (void)state, (void)threads, (void)format;
    BEGIN;
    batch = size;
    return SUCCESS;
}
status nvjpegDecodeBatched(object *h, object *s, const bytes *data, const size_t *lengths, image *out, void *stream) {
    (void)h, (void)s, (void)stream;
    BEGIN;
    for (int i = 0; i < batch; i++) {
        if (lengths[i] < 5 || data[i][0] != 'J')
            return BAD_JPEG;
        memset(out[i].channel[0], data[i][4], out[i].pitch[0] * data[i][2]);
    }
    return SUCCESS;
}

status nvjpegBufferPinnedCreate(object *h, void *a, object **out) { (void)h, (void)a; return make(__func__, out); }
status nvjpegBufferPinnedDestroy(object *buffer) { return destroy(__func__, buffer); }
status nvjpegBufferDeviceCreate(object *h, void *a, object **out) { (void)h, (void)a; return make(__func__, out); }
status nvjpegBufferDeviceDestroy(object *buffer) { return destroy(__func__, buffer); }
status nvjpegStateAttachPinnedBuffer(object *state, object *buffer) {
    BEGIN;
    state->attached[0] = buffer;
    return SUCCESS;
}
status nvjpegStateAttachDeviceBuffer(object *state, object *buffer) {
    BEGIN;
    state->attached[1] = buffer;
    return SUCCESS;
}

status nvjpegJpegStreamCreate(object *handle, object **out) { (void)handle; return make(__func__, out); }
status nvjpegJpegStreamDestroy(object *stream) { return destroy(__func__, stream); }
status nvjpegJpegStreamParse(object *handle, bytes data, size_t length, int metadata, int save, object *stream) {
    (void)handle, (void)metadata, (void)save;
    BEGIN;
    if (length < 5 || data[0] != 'J')
        return BAD_JPEG;
    stream->data = data;
    return SUCCESS;
}
status nvjpegJpegStreamGetFrameDimensions(object *stream, unsigned *width, unsigned *height) {
    *width = stream->data[1];
    *height = stream->data[2];
    return SUCCESS;
}

status nvjpegDecodeParamsCreate(object *handle, object **out) { (void)handle; return make(__func__, out); }
status nvjpegDecodeParamsDestroy(object *params) { return destroy(__func__, params); }
status nvjpegDecodeParamsSetOutputFormat(object *params, int format) {
    (void)params;
    BEGIN;
    return format == 5 ? SUCCESS : INVALID_PARAMETER;
}

#ifndef WITHOUT_DECODER
status nvjpegDecoderCreate(object *handle, int kind, object **out) { (void)handle, (void)kind; return make(__func__, out); }
#endif
status nvjpegDecoderDestroy(object *decoder) { return destroy(__func__, decoder); }
status nvjpegDecoderJpegSupported(object *decoder, object *stream, object *params, int *unsupported) {
    (void)decoder, (void)params;
    *unsupported = stream->data[3] != 3;
    return SUCCESS;
}
status nvjpegDecoderStateCreate(object *h, object *decoder, object **out) {
    (void)h, (void)decoder;
    return make(__func__, out);
}
status nvjpegDecodeJpegHost(object *handle, object *decoder, object *state, object *params, object *stream) {
    (void)handle, (void)decoder, (void)params;
    BEGIN;
    if (!state->attached[0] || !state->attached[1])
        return INVALID_PARAMETER;
    state->data = stream->data;
    return SUCCESS;
}
status nvjpegDecodeJpegTransferToDevice(object *h, object *decoder, object *state, object *jpeg, void *stream) {
    (void)h, (void)decoder, (void)stream;
    BEGIN;
    return state->data == jpeg->data ? SUCCESS : INVALID_PARAMETER;
}
status nvjpegDecodeJpegDevice(object *h, object *decoder, object *state, image *destination, void *stream) {
    (void)h, (void)decoder, (void)stream;
    BEGIN;
    memset(destination->channel[0], state->data[4], destination->pitch[0] * state->data[2]);
    return SUCCESS;
}

#ifndef WITHOUT_OPTIONAL
typedef struct {
    int (*allocate)(void *context, void **out, size_t size, void *stream);
    int (*free)(void *context, void *memory, size_t size, void *stream);
    void *context;
} allocator;
static allocator allocators[2];
static void *memory[2];
/* Asks for 100 bytes of each kind. */
status nvjpegCreateExV2(int backend, allocator *device, allocator *pinned, unsigned flags, object **out) {
    (void)backend, (void)flags;
    allocators[0] = *device;
    allocators[1] = *pinned;
    for (int i = 0; i < 2; i++)
        if (allocators[i].allocate(allocators[i].context, &memory[i], 100, NULL))
            return 5;
    return make(__func__, out);
}
status fake_free(void) {
    int failed = 0;
    for (int i = 0; i < 2; i++)
        failed |= allocators[i].free(allocators[i].context, memory[i], 100, NULL);
    return failed;
}
static status log_number(const char *what, size_t number) {
    char line[64];
    snprintf(line, sizeof line, "%s %zu", what, number);
    log_event(line);
    return SUCCESS;
}
status nvjpegSetDeviceMemoryPadding(size_t bytes, object *h) { (void)h; return log_number("device padding", bytes); }
status nvjpegSetPinnedMemoryPadding(size_t bytes, object *h) { (void)h; return log_number("pinned padding", bytes); }
status nvjpegJpegStreamParseHeader(object *handle, bytes data, size_t length, object *stream) {
    (void)handle;
    BEGIN;
    if (length < 5 || data[0] != 'J')
        return BAD_JPEG;
    stream->data = data;
    return SUCCESS;
}
status nvjpegDecodeParamsSetROI(object *params, int x, int y, int width, int height) {
    char line[64];
    (void)params;
    snprintf(line, sizeof line, "region %d %d %d %d", x, y, width, height);
    log_event(line);
    return SUCCESS;
}
status nvjpegGetHardwareDecoderInfo(object *handle, unsigned *engines, unsigned *cores) {
    (void)handle;
    *engines = 7;
    *cores = 1;
    return SUCCESS;
}
status nvjpegDecodeBatchedSupported(object *handle, object *stream, int *unsupported) {
    (void)handle;
    *unsupported = stream->data[3] != 3;
    return SUCCESS;
}
#endif
