/* SPDX-License-Identifier: Apache-2.0 */
/* s3.h - objects of an S3 storage, through libcurl where it is found at run
 * time.
 *
 * Endpoint and credentials come from the environment: AWS_ENDPOINT_URL_S3 or
 * AWS_ENDPOINT_URL (else Amazon's of the region), AWS_ACCESS_KEY_ID,
 * AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION or AWS_DEFAULT_REGION
 * (us-east-1). Requests are signed by libcurl (AWS signature version 4).
 * One that fails for a moment is repeated for three seconds (base/retry.h).
 * Keys are names below the prefix of the place. */
#ifndef LOCKSTEP_CHECKPOINT_S3_H
#define LOCKSTEP_CHECKPOINT_S3_H

#include <stdint.h>
#include "base/text.h"
#include "checkpoint/s3_text.h"

/* Larger files are sent in parts of so many bytes. */
enum { S3_PART_BYTES = 8 << 20 };

struct s3;

/* ERR_CONFIG: no place, no credentials; ERR_DEVICE: no library. Nothing is
 * sent. */
status s3_open(struct s3 **out, const char *url);
void s3_close(struct s3 *s3); /* NULL allowed */
/* Requests of this process fail with ERR_STOPPED from S3_STOP_S seconds after
 * the first call on: a run that is asked to end will be killed soon. */
enum { S3_STOP_S = 15 };
void s3_stop_soon(void);
/* Requests of `s3` fail with ERR_STOPPED from so many seconds after now on. */
void s3_hurry(struct s3 *s3, double seconds);

/* ERR_MISSING: no such object or bucket. ERR_CONFIG: refused. ERR_IO: the rest.
 */
status s3_put(struct s3 *s3, const char *key, const void *bytes,
              size_t length);
/* Only where no object has that name (etag NULL), or where the one that has it
 * is that which s3_get_tagged read. *put false: another was faster, or this
 * request was, and its answer was lost. A storage that refuses such conditions,
 * or does not know them, puts it anyway. */
enum { S3_ETAG_BYTES = 128 };
status s3_put_if(struct s3 *s3, const char *key, const struct text *bytes,
                 const char *etag, bool *put);
/* The first `length` bytes of the file, which is read back and compared. Of a
 * large one whose upload was interrupted, only the parts that the storage lacks
 * are sent. `there`: an object of that name may be there; it stays where it has
 * these bytes. */
status s3_put_file(struct s3 *s3, const char *key, const char *path,
                   int64_t length, bool there);
/* Ends uploads in parts that nobody will go on with, for which the storage
 * would be paid: those of keys for which `goes` is true. */
status s3_drop_uploads(struct s3 *s3,
                       bool (*goes)(const void *argument, const char *key),
                       const void *argument);
/* ERR_FORMAT: it has more than bytes_max. */
status s3_get(struct s3 *s3, const char *key, size_t bytes_max,
              struct text *out);
/* etag: of what is there, even if it is too long; "": it has none. */
status s3_get_tagged(struct s3 *s3, const char *key, size_t bytes_max,
                     struct text *out, char etag[S3_ETAG_BYTES]);
/* Into a new file. */
status s3_get_file(struct s3 *s3, const char *key, const char *path,
                   int64_t bytes_max);
status s3_delete(struct s3 *s3, const char *key);
/* Each key, without the prefix of the place; at most a million. */
status s3_list(struct s3 *s3, status (*each)(void *argument, const char *key),
               void *argument);

#endif
