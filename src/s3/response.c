// SPDX-License-Identifier: Apache-2.0
// Answers that all operations share: errors as AWS's XML, XML bodies, and the common headers.
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "core/metrics.h"
#include "s3/request.h"
#include "s3/s3_private.h"

#define ERROR_XML_BYTES_MAX (256 * KIB)

static void common_headers(struct s3_request *rq)
{
    http_response_header(rq->x, "x-amz-request-id", BYTES(rq->request_id, S3_REQUEST_ID_CHARS));
}

void s3_xml_begin(struct s3_request *rq, struct xml_writer *w, size_t guess_bytes)
{
    xml_writer_init_arena(w, rq->arena, guess_bytes, HTTP_REQUEST_ARENA_MAX / 4);
    xml_writer_declaration(w);
}

void s3_xml_owner(struct xml_writer *w, const char *element)
{
    xml_writer_open(w, element);
    xml_writer_string(w, "ID", S3_OWNER_ID);
    xml_writer_string(w, "DisplayName", S3_OWNER_ID);
    xml_writer_close(w);
}

enum err s3_respond_xml(struct s3_request *rq, struct xml_writer *w)
{
    struct bytes body;
    TRY(xml_writer_finish(w, &body));
    common_headers(rq);
    http_response_header_text(rq->x, "content-type", "application/xml");
    return http_response_send(rq->x, 200, body);
}

enum err s3_respond_empty(struct s3_request *rq, u32 status)
{
    common_headers(rq);
    return http_response_send(rq->x, status, BYTES_NONE);
}

// The resource as AWS shows it: the decoded path.
static void error_xml(struct s3_request *rq, const struct err_info *info, struct xml_writer *w)
{
    xml_writer_init_arena(w, rq->arena, 1024, ERROR_XML_BYTES_MAX);
    xml_writer_declaration(w);
    xml_writer_open(w, "Error");
    xml_writer_string(w, "Code", info->s3_code);
    xml_writer_string(w, "Message", rq->error_message != NULL ? rq->error_message : info->text);
    for (u32 i = 0; i < rq->error_field_count; i++) {
        xml_writer_text(w, rq->error_fields[i].name, rq->error_fields[i].value);
    }
    if (rq->bucket.len > 0 && info == err_info(ERR_S3_NO_SUCH_BUCKET)) {
        xml_writer_text(w, "BucketName", rq->bucket);
    }
    if (rq->key.len > 0 &&
        (info == err_info(ERR_S3_NO_SUCH_KEY) || info == err_info(ERR_NOT_FOUND))) {
        xml_writer_text(w, "Key", rq->key);
    }
    if (rq->path.len > 0) {
        xml_writer_text(w, "Resource", rq->path);
    }
    xml_writer_string(w, "RequestId", rq->request_id);
    xml_writer_string(w, "HostId", "leat");
    xml_writer_close(w);
}

void s3_respond_error(struct s3_request *rq, enum err e)
{
    const struct err_info *info = err_info(e);
    if (info->http_status >= 500) {
        metric_add(METRIC_S3_ERRORS_5XX, 1);
    } else if (info->http_status >= 400) {
        metric_add(METRIC_S3_ERRORS_4XX, 1);
    }
    if (http_response_is_started(rq->x)) {
        http_response_abort(rq->x);
        return;
    }
    if (info->category == ERR_CATEGORY_BUG || info->category == ERR_CATEGORY_MEDIA ||
        info->category == ERR_CATEGORY_CORRUPT) {
        LOG_ERROR("s3_request_failed", "request_id=%s error=%s method=%.*s path=\"%.*s\"",
                  rq->request_id, info->name, BYTES_PRINTF(rq->x->method_text),
                  BYTES_PRINTF(BYTES(rq->path.data, MIN(rq->path.len, (size_t)256))));
    }
    common_headers(rq);
    if (e == ERR_S3_NOT_MODIFIED) {
        (void)!http_response_send(rq->x, 304, BYTES_NONE);
        return;
    }
    if (info->http_status == 503) {
        http_response_header_text(rq->x, "retry-after", "1");
    }
    struct xml_writer w;
    struct bytes body = BYTES_NONE;
    error_xml(rq, info, &w);
    if (xml_writer_finish(&w, &body) != OK) {
        body = BYTES_NONE;
    }
    http_response_header_text(rq->x, "content-type", "application/xml");
    // The client may be gone; there is nobody left to tell.
    (void)!http_response_send(rq->x, (u32)info->http_status, body);
}

size_t s3_error_body(void *arg, enum err e, char *out, size_t cap)
{
    (void)arg;
    const struct err_info *info = err_info(e);
    int n = snprintf(out, cap,
                     "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>%s</Code>"
                     "<Message>%s</Message></Error>",
                     info->s3_code, info->text);
    return n < 0 ? 0 : MIN((size_t)n, cap);
}
