/* Reductions on the floating types that Rust does not have: long double, whose size and format are
 * the C compiler's business, and binary128. Each function combines n elements of in into inout;
 * neither needs to be aligned. */

#include <stddef.h>

#define IS_NAN(x) ((x) != (x))

/* KERNELS(prefix, type): all the operations on one type. A value is loaded and stored as `any`,
 * which touches its own bytes only and never the padding behind it. As for the other floating
 * types, a NaN loses against a number. */
#define KERNELS(prefix, type)                                                                      \
    typedef type prefix##_any __attribute__((aligned(1), may_alias));                              \
                                                                                                   \
    KERNEL(prefix, sum, type, a + b)                                                               \
    KERNEL(prefix, prod, type, a *b)                                                               \
    KERNEL(prefix, min, type, (a < b || IS_NAN(b)) ? a : b)                                        \
    KERNEL(prefix, max, type, (a > b || IS_NAN(b)) ? a : b)                                        \
                                                                                                   \
    void prefix##_complex_sum(const unsigned char *in, unsigned char *inout, size_t n)             \
    {                                                                                              \
        prefix##_sum(in, inout, 2 * n);                                                            \
    }                                                                                              \
                                                                                                   \
    void prefix##_complex_prod(const unsigned char *in, unsigned char *inout, size_t n)            \
    {                                                                                              \
        const prefix##_any *x = (const prefix##_any *)in;                                          \
        prefix##_any *y = (prefix##_any *)inout;                                                   \
        for (size_t i = 0; i < 2 * n; i += 2) {                                                    \
            type ar = x[i], ai = x[i + 1], br = y[i], bi = y[i + 1];                               \
            y[i] = ar * br - ai * bi;                                                              \
            y[i + 1] = ar * bi + ai * br;                                                          \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    /* -1, 0, 1: less, equal, greater; 2: the first is NaN, 3: the second, 4: both. */             \
    int prefix##_compare(const unsigned char *x, const unsigned char *y)                           \
    {                                                                                              \
        type a = *(const prefix##_any *)x, b = *(const prefix##_any *)y;                           \
        if (IS_NAN(a))                                                                             \
            return IS_NAN(b) ? 4 : 2;                                                              \
        if (IS_NAN(b))                                                                             \
            return 3;                                                                              \
        return a < b ? -1 : a > b;                                                                 \
    }                                                                                              \
                                                                                                   \
    /* For the tests: the same from a double and back. */                                          \
    void prefix##_from(double v, unsigned char *out)                                               \
    {                                                                                              \
        *(prefix##_any *)out = v;                                                                  \
    }                                                                                              \
    double prefix##_to(const unsigned char *in)                                                    \
    {                                                                                              \
        return (double)*(const prefix##_any *)in;                                                  \
    }

#define KERNEL(prefix, name, type, expression)                                                     \
    void prefix##_##name(const unsigned char *in, unsigned char *inout, size_t n)                  \
    {                                                                                              \
        const prefix##_any *x = (const prefix##_any *)in;                                          \
        prefix##_any *y = (prefix##_any *)inout;                                                   \
        for (size_t i = 0; i < n; i++) {                                                           \
            type a = x[i], b = y[i];                                                               \
            y[i] = (expression);                                                                   \
        }                                                                                          \
    }

#if defined(__SIZEOF_FLOAT128__)
typedef __float128 binary128;
#else
/* Where there is no __float128, long double is that format already (AArch64). */
typedef long double binary128;
#endif

KERNELS(ferry_long_double, long double)
KERNELS(ferry_binary128, binary128)

struct pair {
    long double value;
    int index;
};
typedef int any_int __attribute__((aligned(1), may_alias));

#define LOC_KERNEL(name, beats)                                                                    \
    void ferry_long_double_##name(const unsigned char *in, unsigned char *inout, size_t n)         \
    {                                                                                              \
        for (size_t i = 0; i < n; i++, in += sizeof(struct pair), inout += sizeof(struct pair)) {  \
            long double a = *(const ferry_long_double_any *)in;                                    \
            long double b = *(ferry_long_double_any *)inout;                                       \
            int j = *(const any_int *)(in + offsetof(struct pair, index));                         \
            any_int *k = (any_int *)(inout + offsetof(struct pair, index));                        \
            if (a beats b || (IS_NAN(b) && !IS_NAN(a))) {                                          \
                *(ferry_long_double_any *)inout = a;                                               \
                *k = j;                                                                            \
            } else if ((a == b || (IS_NAN(a) && IS_NAN(b))) && j < *k) {                           \
                *k = j;                                                                            \
            }                                                                                      \
        }                                                                                          \
    }

LOC_KERNEL(minloc, <)
LOC_KERNEL(maxloc, >)
