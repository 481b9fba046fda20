// Softmax regression by stochastic gradient descent, and the change it makes: an update is after minus before.
import { readFileSync } from "node:fs";
import { NoModel } from "./safetensors.js";
export function readSamples(path) {
    const lines = readFileSync(path, "utf8").split("\n").filter((line) => line.trim() !== "");
    return lines.map((line, at) => {
        const [label = NaN, ...features] = line.split(",").map(Number);
        if (!Number.isInteger(label) || label < 0 || !features.every(Number.isFinite))
            throw new Error(`${path}: line ${at + 1} is no sample`);
        return { label, features };
    });
}
export function train(model, samples, recipe, seed) {
    const [weight, bias] = [model.get("weight"), model.get("bias")];
    const [classes, inputs] = weight?.shape ?? [];
    if (model.size !== 2 || !weight || !bias || !classes || !inputs || weight.shape.length !== 2 || bias.data.length !== classes)
        throw new NoModel("this device trains weight [classes, inputs] and bias [classes]");
    if (samples.some((sample) => sample.label >= classes || sample.features.length !== inputs))
        throw new NoModel("the model does not fit this device's samples");
    const w = Float64Array.from(weight.data);
    const b = Float64Array.from(bias.data);
    const metrics = measure(w, b, samples, classes, inputs);
    const draw = generator(seed);
    const order = samples.map((_, at) => at);
    for (let epoch = 0; epoch < recipe.epochs; epoch++) {
        shuffle(order, draw);
        for (let first = 0; first < order.length; first += recipe.batchSize) {
            const chosen = order.slice(first, first + recipe.batchSize);
            const [dw, db] = [new Float64Array(w.length), new Float64Array(b.length)];
            for (const at of chosen) {
                const sample = samples[at];
                const chances = forward(w, b, sample.features, classes, inputs);
                for (let c = 0; c < classes; c++) {
                    const slope = chances[c] - (c === sample.label ? 1 : 0);
                    db[c] += slope;
                    for (let d = 0; d < inputs; d++)
                        dw[c * inputs + d] += slope * sample.features[d];
                }
            }
            const rate = recipe.learningRate / chosen.length;
            dw.forEach((value, at) => (w[at] -= rate * value));
            db.forEach((value, at) => (b[at] -= rate * value));
        }
    }
    const minus = (after, before) => ({ shape: before.shape, data: Float32Array.from(after, (value, at) => value - before.data[at]) });
    const change = new Map([["bias", minus(b, bias)], ["weight", minus(w, weight)]]);
    for (const { data } of change.values())
        if (!data.every(Number.isFinite))
            throw new NoModel("training left the finite numbers; the learning rate may be too high");
    return { change, metrics };
}
function forward(w, b, features, classes, inputs) {
    const scores = Float64Array.from(b);
    for (let c = 0; c < classes; c++)
        for (let d = 0; d < inputs; d++)
            scores[c] += w[c * inputs + d] * features[d];
    const most = Math.max(...scores);
    const powers = scores.map((score) => Math.exp(score - most));
    const total = powers.reduce((sum, power) => sum + power, 0);
    return powers.map((power) => power / total);
}
function measure(w, b, samples, classes, inputs) {
    let [right, loss] = [0, 0];
    for (const { label, features } of samples) {
        const chances = forward(w, b, features, classes, inputs);
        right += chances.indexOf(Math.max(...chances)) === label ? 1 : 0;
        loss -= Math.log(Math.max(chances[label], 1e-300));
    }
    return { accuracy: right / samples.length, loss: loss / samples.length };
}
function shuffle(order, draw) {
    for (let at = order.length - 1; at > 0; at--) {
        const other = Math.floor(draw() * (at + 1));
        [order[at], order[other]] = [order[other], order[at]];
    }
}
/** A small seeded generator (a Weyl sequence through a mixer), for the order of samples alone: it hides nothing. */
function generator(seed) {
    let state = seed >>> 0;
    return () => {
        state = (state + 0x9e3779b9) >>> 0;
        let mixed = Math.imul(state ^ (state >>> 16), 0x85ebca6b);
        mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
        return ((mixed ^ (mixed >>> 16)) >>> 0) / 2 ** 32;
    };
}
