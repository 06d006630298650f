# SPDX-License-Identifier: Apache-2.0
# Plots for docs/tensor-codec.md. Run in this folder: gnuplot codec.gp
set terminal svg size 760,440 font "sans,13" background "white"
set datafile separator ","
set grid lc rgb "#dddddd"
set border 3
set tics nomirror

set output "speed.svg"
set title "bf16 weights, one core, blocks of 256 KiB in the caches"
set ylabel "GB/s of plain bytes (log)"
set logscale y
set yrange [0.3:100]
set style data histogram
set style histogram cluster gap 1
set style fill solid 0.9 noborder
set xtics rotate by -30
set key top center horizontal
plot "< grep '^weights,cached' bench.csv" using 5:xtic(3) title "encode" lc rgb "#4477aa", \
     "" using 6 title "decode" lc rgb "#ee6677"

set output "ratio-speed.svg"
unset logscale
set title "What a core decodes against what it saves: bf16 weights, entropy floor 1.517"
set xlabel "ratio (plain / stored)"
set ylabel "decode, GB/s (log)"
set logscale y
set xrange [0.95:1.56]
set yrange [0.8:150]
set xtics norotate
set style data points
set arrow 1 from 1.517, 0.8 to 1.517, 150 nohead dt 2 lc rgb "#888888"
unset key
plot "< grep '^weights,cached' bench.csv" using 4:6 with points pt 7 ps 1 lc rgb "#4477aa", \
     "" using 4:6:3 with labels offset 0,0.8 font "sans,10"
unset arrow 1

set output "blocks.svg"
unset logscale y
set title "Ratio by block size, bf16 weights"
set xlabel "block, KiB"
set ylabel "ratio"
set logscale x 2
set xrange [1:1024]
set yrange [0.98:1.56]
set key bottom right
plot "blocks.csv" using 1:3 skip 1 with linespoints pt 7 lw 2 lc rgb "#ee6677" title "DENSE", \
     "" using 1:2 skip 1 with linespoints pt 5 lw 2 lc rgb "#4477aa" title "FAST", \
     1.517 with lines dt 2 lc rgb "#888888" title "entropy floor"

# The plan's formula with the rates of the table: gain over sending plain bytes, one core each side.
set output "plan.svg"
set title "Gain over sending plain bytes, by the formula (AVX-512, one core a side)"
set xlabel "link, GB/s (log)"
set ylabel "plain time / time"
set logscale x 10
set xrange [0.01:20]
set yrange [0:1.6]
set samples 400
set key bottom left
fe = 9.9; fd = 21.5; fr = 1.332; de = 1.66; dd = 4.55; dr = 1.503
max(a, b) = a > b ? a : b
seq(r, e, d, n, x) = (1 / x) / (1 / e / n + 1 / (r * x) + 1 / d)
over(r, e, d, x) = (1 / x) / max(max(1 / e, 1 / d), 1 / (r * x))
plot 1 with lines lc rgb "#888888" dt 2 title "plain", \
     seq(fr, fe, fd, 1, x) with lines lw 2 lc rgb "#4477aa" title "FAST, one after the other", \
     seq(dr, de, dd, 1, x) with lines lw 2 lc rgb "#ee6677" title "DENSE, one after the other", \
     seq(dr, de, dd, 100, x) with lines lw 2 dt 3 lc rgb "#ee6677" title "DENSE, encoded once for 100", \
     over(fr, fe, fd, x) with lines lw 2 dt 4 lc rgb "#4477aa" title "FAST, overlapped", \
     over(dr, de, dd, x) with lines lw 2 dt 4 lc rgb "#aa3377" title "DENSE, overlapped"
