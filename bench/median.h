// median.h - of measured times.
#ifndef MEDIAN_H
#define MEDIAN_H

#include <stdlib.h>

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}
// Sorts n times; the one in the middle.
static double median(double *t, int n) {
    qsort(t, (size_t)n, sizeof *t, by_value);
    return t[n / 2];
}

#endif
