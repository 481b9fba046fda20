# Softmax regression by stochastic gradient descent: reads the model's numbers (first file, one a line) and the samples
# (second file, label,feature,…); prints the change as \xHH escapes of little-endian float32, in the order of the model.
#   shape: classes inputs first-of-weight first-of-bias; recipe: epochs batch learning-rate seed

function exponential(x) { return x < -700 ? 0 : exp(x) }

function forward(s,    c, d, most, total) {
    for (c = 0; c < classes; c++) {
        score[c] = now[bias + c]
        for (d = 0; d < inputs; d++) score[c] += now[weight + c * inputs + d] * feature[s, d]
        if (c == 0 || score[c] > most) { most = score[c]; guess = c }
    }
    for (c = 0; c < classes; c++) total += chance[c] = exponential(score[c] - most)
    for (c = 0; c < classes; c++) chance[c] /= total
}

# The bits of a float32, rounded to nearest; what is too small to have all bits is zero.
function float32(x,    sign, exponent, mantissa) {
    sign = x < 0
    if (sign) x = -x
    if (x < 1.2e-38) return "\\x00\\x00\\x00\\x00"
    exponent = 0
    while (x >= 2) { x /= 2; exponent++ }
    while (x < 1) { x *= 2; exponent-- }
    mantissa = int((x - 1) * 8388608 + 0.5)
    if (mantissa == 8388608) { mantissa = 0; exponent++ }
    if (exponent > 127) { print "a number is beyond float32" > "/dev/stderr"; failed = 1; exit 1 }
    exponent += 127
    return sprintf("\\x%02x\\x%02x\\x%02x\\x%02x", mantissa % 256, int(mantissa / 256) % 256,
        (exponent % 2) * 128 + int(mantissa / 65536), sign * 128 + int(exponent / 2))
}

BEGIN {
    split(shape, parts, " "); classes = parts[1]; inputs = parts[2]; weight = parts[3]; bias = parts[4]
    split(recipe, parts, " "); epochs = parts[1]; batch = parts[2]; rate = parts[3]; srand(parts[4])
    FS = ","; numbers = samples = 0
}
NR == FNR { sub(/^ +/, ""); before[numbers] = now[numbers] = $1 + 0; numbers++; next }
{
    if (NF != inputs + 1 || $1 < 0 || $1 >= classes || $1 != int($1)) {
        print FILENAME ": line " FNR " is no sample of this model" > "/dev/stderr"; failed = 1; exit 1
    }
    label[samples] = $1 + 0
    for (d = 0; d < inputs; d++) feature[samples, d] = $(d + 2) + 0
    samples++
}
END {
    if (failed || numbers != classes * inputs + classes || !samples) exit 1
    for (s = 0; s < samples; s++) { # figures of the model as it came
        forward(s); right += guess == label[s]; loss -= log(chance[label[s]] > 1e-300 ? chance[label[s]] : 1e-300)
        order[s] = s
    }
    printf "{\"accuracy\": %.6f, \"loss\": %.6f}\n", right / samples, loss / samples > figures
    for (e = 0; e < epochs; e++) {
        for (s = samples - 1; s > 0; s--) { other = int(rand() * (s + 1)); kept = order[s]; order[s] = order[other]; order[other] = kept }
        for (first = 0; first < samples; first += batch) {
            last = first + batch < samples ? first + batch : samples
            for (n = 0; n < numbers; n++) step[n] = 0
            for (s = first; s < last; s++) {
                forward(order[s])
                for (c = 0; c < classes; c++) {
                    slope = chance[c] - (c == label[order[s]])
                    step[bias + c] += slope
                    for (d = 0; d < inputs; d++) step[weight + c * inputs + d] += slope * feature[order[s], d]
                }
            }
            for (n = 0; n < numbers; n++) now[n] -= rate * step[n] / (last - first)
        }
    }
    for (n = 0; n < numbers; n++) printf "%s", float32(now[n] - before[n])
}
