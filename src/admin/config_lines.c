// SPDX-License-Identifier: Apache-2.0
// Where everything stands in a configuration file. libcyaml loads values but keeps no positions, so
// this walks the same document once with libyaml (which libcyaml itself is built on), refuses
// unknown keys with a suggestion, and remembers the line of each key for later messages.
#include "admin/config_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "admin/values.h"

#define DEPTH_MAX 8

#define KEY(path, help) path,
static const char *const known_paths[] = {
#include "admin/config.def"
};
#undef KEY

// One open mapping or list.
struct level {
    bool is_list;
    bool wants_value; // a mapping: its key has been read
    size_t path_len;  // of walk.path before this level's own key was appended
    u32 entries;
};

struct walk {
    struct config_lines *lines;
    struct config_error *error;
    char path[CONFIG_PATH_BYTES];
    struct level levels[DEPTH_MAX];
    u32 depth;
};

static bool is_known(const char *path)
{
    for (size_t i = 0; i < ARRAY_LEN(known_paths); i++) {
        if (strcmp(path, known_paths[i]) == 0) {
            return true;
        }
    }
    return false;
}

// "unknown key 'drvie' at line 7; did you mean 'drives'?": candidates are the keys that may stand
// in the same mapping.
static enum err fail_unknown(struct walk *w, const char *key, size_t parent_len, u32 line)
{
    const char *names[ARRAY_LEN(known_paths)];
    size_t count = 0;
    for (size_t i = 0; i < ARRAY_LEN(known_paths); i++) {
        const char *path = known_paths[i];
        bool is_inside =
            parent_len == 0 || (strncmp(path, w->path, parent_len) == 0 && path[parent_len] == '.');
        const char *name = path + (parent_len == 0 ? 0 : parent_len + 1);
        if (is_inside && strlen(path) > parent_len && strpbrk(name, ".[") == NULL) {
            names[count++] = name;
        }
    }
    const char *meant = name_suggest(key, names, count);
    char where[CONFIG_PATH_BYTES + 8] = "";
    if (parent_len > 0) {
        snprintf(where, sizeof(where), " in '%.*s'", (int)parent_len, w->path);
    }
    if (meant != NULL) {
        return config_fail(w->error, "unknown key '%.64s'%s at line %u; did you mean '%s'?", key,
                           where, line, meant);
    }
    return config_fail(w->error, "unknown key '%.64s'%s at line %u", key, where, line);
}

static enum err remember(struct walk *w, u32 index, u32 line)
{
    if (w->lines->count == CONFIG_LINES_MAX) {
        return config_fail(w->error, "more than %d keys and entries (line %u)", CONFIG_LINES_MAX,
                           line);
    }
    struct config_line *l = &w->lines->list[w->lines->count++];
    snprintf(l->path, sizeof(l->path), "%s", w->path);
    l->index = index;
    l->line = line;
    return OK;
}

// A key of the innermost mapping: appended to the path until its value is over.
static enum err key_read(struct walk *w, const char *key, u32 line)
{
    struct level *top = &w->levels[w->depth - 1];
    size_t len = top->path_len;
    size_t left = sizeof(w->path) - len;
    int n = snprintf(w->path + len, left, "%s%s", len == 0 ? "" : ".", key);
    bool is_cut = n < 0 || (size_t)n >= left;
    if (is_cut || strpbrk(key, ".[") != NULL || !is_known(w->path)) {
        w->path[len] = 0;
        return fail_unknown(w, key, len, line);
    }
    u32 index =
        w->depth >= 2 && w->levels[w->depth - 2].is_list ? w->levels[w->depth - 2].entries - 1 : 0;
    u32 first = config_lines_find(w->lines, w->path, index);
    if (first != 0) {
        return config_fail(w->error, "key '%s' at line %u stands already at line %u", w->path, line,
                           first);
    }
    top->wants_value = true;
    return remember(w, index, line);
}

// A value begins: inside a list it is an entry of its own.
static enum err value_begin(struct walk *w, u32 line)
{
    if (w->depth == 0) {
        return OK;
    }
    struct level *top = &w->levels[w->depth - 1];
    if (!top->is_list) {
        return OK;
    }
    if (!is_known(w->path)) {
        return config_fail(w->error, "'%.*s' at line %u must not be a list",
                           (int)(strlen(w->path) - 2), w->path, line);
    }
    return remember(w, top->entries++, line);
}

// A value is over: the mapping that it belongs to waits for its next key.
static void value_end(struct walk *w)
{
    if (w->depth > 0 && !w->levels[w->depth - 1].is_list) {
        struct level *top = &w->levels[w->depth - 1];
        top->wants_value = false;
        w->path[top->path_len] = 0;
    }
}

static enum err level_open(struct walk *w, bool is_list, u32 line)
{
    if (w->depth == DEPTH_MAX || (w->depth == 0 && is_list)) {
        return config_fail(w->error, "line %u: a mapping of keys is expected here", line);
    }
    TRY(value_begin(w, line));
    if (is_list) {
        size_t len = strlen(w->path);
        if (len + 3 > sizeof(w->path)) {
            return config_fail(w->error, "line %u: nested too deeply", line);
        }
        memcpy(w->path + len, "[]", 3);
    }
    w->levels[w->depth++] = (struct level){.is_list = is_list, .path_len = strlen(w->path)};
    return OK;
}

static void level_close(struct walk *w)
{
    ASSERT(w->depth > 0);
    if (w->levels[--w->depth].is_list) {
        w->path[strlen(w->path) - 2] = 0;
    }
    value_end(w);
}

// Is the key at w->path a list or a mapping of its own?
static bool has_children(const struct walk *w)
{
    size_t len = strlen(w->path);
    for (size_t i = 0; i < ARRAY_LEN(known_paths); i++) {
        const char *path = known_paths[i];
        if (strncmp(path, w->path, len) == 0 && (path[len] == '.' || path[len] == '[')) {
            return true;
        }
    }
    return false;
}

// A scalar is a key, the value of the key before, or an entry of a list.
static enum err scalar_take(struct walk *w, const yaml_event_t *event, u32 line)
{
    const char *text = (const char *)event->data.scalar.value;
    struct level *top = w->depth > 0 ? &w->levels[w->depth - 1] : NULL;
    if (strlen(text) != event->data.scalar.length) {
        return config_fail(w->error, "line %u: a zero byte", line);
    }
    if (top == NULL) {
        return text[0] == 0
                   ? OK // an empty document
                   : config_fail(w->error, "line %u: a mapping of keys is expected here", line);
    }
    if (!top->is_list && !top->wants_value) {
        return key_read(w, text, line);
    }
    if (has_children(w)) {
        return config_fail(w->error, "key '%s' at line %u must be %s", w->path, line,
                           config_key_help(w->path));
    }
    TRY(value_begin(w, line));
    value_end(w);
    return OK;
}

static enum err event_take(struct walk *w, const yaml_event_t *event)
{
    u32 line = (u32)event->start_mark.line + 1;
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        return scalar_take(w, event, line);
    case YAML_MAPPING_START_EVENT:
    case YAML_SEQUENCE_START_EVENT:
        if (w->depth > 0 && !w->levels[w->depth - 1].is_list &&
            !w->levels[w->depth - 1].wants_value) {
            return config_fail(w->error, "line %u: a key must be a plain word", line);
        }
        return level_open(w, event->type == YAML_SEQUENCE_START_EVENT, line);
    case YAML_MAPPING_END_EVENT:
    case YAML_SEQUENCE_END_EVENT:
        level_close(w);
        return OK;
    case YAML_ALIAS_EVENT:
        return config_fail(w->error, "line %u: aliases are not supported", line);
    case YAML_DOCUMENT_START_EVENT:
    case YAML_DOCUMENT_END_EVENT:
    case YAML_STREAM_START_EVENT:
    case YAML_STREAM_END_EVENT:
    case YAML_NO_EVENT:
        break;
    }
    return OK;
}

static enum err walk_document(struct walk *w, yaml_parser_t *parser)
{
    u32 documents = 0;
    for (;;) {
        yaml_event_t event;
        if (!yaml_parser_parse(parser, &event)) {
            const char *problem = parser->problem != NULL ? parser->problem : "not YAML";
            return config_fail(w->error, "line %zu: %s", parser->problem_mark.line + 1, problem);
        }
        bool is_end = event.type == YAML_STREAM_END_EVENT;
        documents += event.type == YAML_DOCUMENT_START_EVENT;
        enum err e = event_take(w, &event);
        if (e == OK && documents > 1) {
            e = config_fail(w->error, "line %zu: only one YAML document is read",
                            event.start_mark.line + 1);
        }
        yaml_event_delete(&event);
        TRY(e);
        if (is_end) {
            return OK;
        }
    }
}

enum err config_lines_read(struct config_lines *lines, struct bytes yaml,
                           struct config_error *error)
{
    *lines = (struct config_lines){.list = calloc(CONFIG_LINES_MAX, sizeof(*lines->list))};
    yaml_parser_t parser;
    if (lines->list == NULL || !yaml_parser_initialize(&parser)) {
        return ERR_NO_MEMORY;
    }
    yaml_parser_set_input_string(&parser, yaml.data, yaml.len);
    struct walk w = {.lines = lines, .error = error};
    enum err e = walk_document(&w, &parser);
    yaml_parser_delete(&parser);
    return e;
}

void config_lines_free(struct config_lines *lines)
{
    free(lines->list);
    *lines = (struct config_lines){0};
}

u32 config_lines_find(const struct config_lines *lines, const char *path, u32 index)
{
    for (u32 i = 0; i < lines->count; i++) {
        if (lines->list[i].index == index && strcmp(lines->list[i].path, path) == 0) {
            return lines->list[i].line;
        }
    }
    return 0;
}
