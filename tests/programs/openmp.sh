# A C program parallel by OpenMP.
. "$SCENES/prelude.sh"
cat >main.c <<'C'
#include <omp.h>
#include <stdio.h>
int main(void) {
    static double a[200000];
    double sum = 0;
    long hits = 0;
    #pragma omp parallel for
    for (int i = 0; i < 200000; i++) a[i] = (double)i * (i % 7);
    #pragma omp parallel for reduction(+ : hits)
    for (int i = 0; i < 200000; i++) hits += a[i] > 1000;
    for (int round = 0; round < 20; round++) {
        #pragma omp parallel
        {
            #pragma omp single
            for (int k = 0; k < 10; k++) {
                #pragma omp task
                {
                    #pragma omp atomic
                    hits += k;
                }
            }
            #pragma omp barrier
            #pragma omp critical
            hits++;
        }
    }
    for (int i = 0; i < 200000; i++) sum += a[i];
    printf("%ld %.0f %d\n", hits, sum, omp_get_max_threads());
    return 0;
}
C
gcc -O2 -fopenmp -o guest main.c
OMP_NUM_THREADS=4 "${run[@]}" ./guest
OMP_NUM_THREADS=2 OMP_SCHEDULE=dynamic "${run[@]}" ./guest
