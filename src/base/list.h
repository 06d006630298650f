// SPDX-License-Identifier: Apache-2.0
// An intrusive doubly linked list with a head node. The list owns nothing.
#pragma once

#include "base/assert.h"
#include "base/types.h"

struct list {
    struct list *next;
    struct list *prev;
};

static inline void list_init(struct list *l)
{
    l->next = l;
    l->prev = l;
}

static inline bool list_is_empty(const struct list *head)
{
    return head->next == head;
}

static inline void list_add_tail(struct list *head, struct list *node)
{
    node->prev = head->prev;
    node->next = head;
    head->prev->next = node;
    head->prev = node;
}

static inline void list_add_head(struct list *head, struct list *node)
{
    list_add_tail(head->next, node);
}

// Unlinks the node and leaves it pointing at itself, so that removing twice is harmless.
static inline void list_remove(struct list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    list_init(node);
}

static inline struct list *list_pop_head(struct list *head)
{
    if (list_is_empty(head)) {
        return NULL;
    }
    struct list *node = head->next;
    list_remove(node);
    return node;
}

// Moves everything from `from` to the tail of `to`; `from` is empty afterwards.
static inline void list_splice_tail(struct list *to, struct list *from)
{
    if (list_is_empty(from)) {
        return;
    }
    from->next->prev = to->prev;
    to->prev->next = from->next;
    from->prev->next = to;
    to->prev = from->prev;
    list_init(from);
}

#define LIST_FOREACH(node, head)                                                                   \
    for (struct list *node = (head)->next; node != (head); node = node->next)
#define LIST_FOREACH_SAFE(node, head)                                                              \
    for (struct list *node = (head)->next, *node##_next = node->next; node != (head);              \
         node = node##_next, node##_next = node->next)
