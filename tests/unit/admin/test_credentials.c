// SPDX-License-Identifier: Apache-2.0
// Generated credentials: made once, found again, refused when others can read them.
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "admin/credentials.h"

static enum err mode_of(const char *path, u32 *out)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        return ERR_NOT_FOUND;
    }
    *out = st.st_mode & 07777;
    return OK;
}

struct place {
    struct sys *sys;
    char dir[64];
    char file[96];
};

static int setup(void **state)
{
    struct place *p = calloc(1, sizeof(*p));
    snprintf(p->dir, sizeof(p->dir), "/tmp/leat-credentials-XXXXXX");
    if (p == NULL || sys_real_create(&p->sys) != OK || mkdtemp(p->dir) == NULL) {
        return -1;
    }
    snprintf(p->file, sizeof(p->file), "%s/credentials", p->dir);
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    struct place *p = *state;
    unlink(p->file);
    rmdir(p->dir); // fails, and so leaves a trace, if anything else was left behind
    bool is_left = access(p->dir, F_OK) == 0;
    p->sys->ops->destroy(p->sys);
    free(p);
    return is_left ? -1 : 0;
}

static void file_put(const struct place *p, const char *text, mode_t mode)
{
    FILE *f = fopen(p->file, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(p->file, mode), 0);
}

static void test_made_once(void **state)
{
    struct place *p = *state;
    struct credentials first;
    struct credentials again;
    assert_int_equal(credentials_obtain(p->sys, p->dir, mode_of, &first), OK);
    assert_true(first.is_generated);
    assert_int_equal(strlen(first.access_key), 20);
    assert_int_equal(strlen(first.secret_key), 40);
    u32 mode = 0;
    assert_int_equal(mode_of(p->file, &mode), OK);
    assert_int_equal(mode, 0600);
    assert_int_equal(credentials_obtain(p->sys, p->dir, mode_of, &again), OK);
    assert_false(again.is_generated);
    assert_string_equal(first.access_key, again.access_key);
    assert_string_equal(first.secret_key, again.secret_key);
    struct credentials other;
    credentials_generate(p->sys, &other);
    assert_string_not_equal(first.access_key, other.access_key);
    assert_string_not_equal(first.secret_key, other.secret_key);
}

static void test_wide_mode_refused(void **state)
{
    struct place *p = *state;
    struct credentials c;
    static const mode_t wide[] = {0640, 0604, 0610, 0644, 0660};
    for (size_t i = 0; i < ARRAY_LEN(wide); i++) {
        file_put(p, "access_key_id=AAA\nsecret_access_key=12345678\n", wide[i]);
        assert_int_equal(credentials_obtain(p->sys, p->dir, mode_of, &c), ERR_PERMISSION);
    }
    assert_int_equal(chmod(p->file, 0400), 0);
    assert_int_equal(credentials_obtain(p->sys, p->dir, mode_of, &c), OK);
    assert_string_equal(c.access_key, "AAA");
    assert_string_equal(c.secret_key, "12345678");
}

static void test_malformed_refused(void **state)
{
    struct place *p = *state;
    struct credentials c;
    char large[700];
    memset(large, 'a', sizeof(large) - 1);
    large[sizeof(large) - 1] = 0;
    const char *const bad[] = {
        "",
        "access_key_id=AAA\n",
        "access_key_id=AAA\nsecret_access_key=12345678",
        "access_key_id=AAA\nsecret_access_key=12345678\n\n",
        "secret_access_key=12345678\naccess_key_id=AAA\n",
        "access_key_id=\nsecret_access_key=12345678\n",
        "access_key_id=AAA\nsecret_access_key=short\n",
        "access_key_id=A A\nsecret_access_key=12345678\n",
        large,
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        file_put(p, bad[i], 0600);
        assert_int_equal(credentials_obtain(p->sys, p->dir, mode_of, &c), ERR_INVALID);
    }
}

static void test_leftover_of_a_crash(void **state)
{
    struct place *p = *state;
    char aside[128];
    snprintf(aside, sizeof(aside), "%s.new", p->file);
    FILE *f = fopen(aside, "w");
    assert_non_null(f);
    fclose(f);
    struct credentials c;
    assert_int_equal(credentials_obtain(p->sys, p->dir, mode_of, &c), OK);
    assert_int_not_equal(access(aside, F_OK), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_made_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_wide_mode_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_malformed_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_leftover_of_a_crash, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
