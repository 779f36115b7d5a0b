/* droste/image.h: the container images that are unpacked on this machine.
 *
 * The setting "image" says what a local sandbox starts from. The first use unpacks an image; these
 * functions unpack it before, show what is there, and remove it.
 */
#ifndef DROSTE_IMAGE_H
#define DROSTE_IMAGE_H

#include "droste/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    const char *id, *path; /* the SHA-256 of its configuration; its root directory */
    const char *names;     /* JSON: ["NAME", …], by which it was opened */
    const char *config;    /* JSON, the image's configuration; NULL if the image is damaged */
    unsigned long long bytes, files;
    long long made; /* seconds since 1970 */
    int in_use, damaged;
} droste_image;
/* A result other than 0 ends the visit. */
typedef int droste_image_fn(void *arg, const droste_image *image);

/* Unpacks an image unless that was done, and shows it. A registry's name is fetched anew. Waits,
 * until droste_interrupt. */
DROSTE_API int droste_image_pull(
    droste *d, const char *name, droste_image_fn *fn, void *arg, droste_error *err);
/* Shows all unpacked images, or one (NULL: all) by its id, the beginning of that, or a name. */
DROSTE_API int droste_image_visit(
    droste *d, const char *image, droste_image_fn *fn, void *arg, droste_error *err);
/* By its id, the beginning of that, or a name. ERROR_ARGUMENT while it is in use. */
DROSTE_API int droste_image_remove(droste *d, const char *image, droste_error *err);

#ifdef __cplusplus
}
#endif

#endif
