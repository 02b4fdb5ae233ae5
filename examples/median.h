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
// Of a[i] / b[i], measured one after the other: what slows both down for a while does not count.
static inline double median_ratio(const double *a, const double *b, int n) {
    double *ratios = (double *)malloc((size_t)n * sizeof *ratios), middle;
    if (!ratios) return 0;
    for (int i = 0; i < n; i++) ratios[i] = a[i] / b[i];
    middle = median(ratios, n);
    return free(ratios), middle;
}

#endif
