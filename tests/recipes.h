// recipes.h - the recipes of low precision as a table, for tests that link par_tp.h's implementation.
#ifndef TEST_RECIPES_H
#define TEST_RECIPES_H
typedef struct test_recipe {
    const char *name;
    par_tp_code code, gradients;
    par_tp_scale scale;
    size_t rows, cols, weight_rows;
    int flags;
} test_recipe;
#define X(constant, name, code, gradients, scale, rows, cols, weight_rows, flags)                            \
    {name, code, gradients, scale, rows, cols, weight_rows, flags},
static const test_recipe test_recipes[] = {PAR_TP_RECIPES(X)};
#undef X
#endif
