# Which iris is it? Asks the k nearest of all others (leave-one-out) and prints the accuracy.
# iris.csv is scikit-learn's: 150 flowers, four lengths in cm and the kind (0, 1, 2), after a
# heading line. Alone: awk -v k=5 -v p=2 -f nearest.awk iris.csv

BEGIN { FS = "," }

NR > 1 {
    n++
    for (i = 1; i <= 4; i++) length_of[n, i] = $i
    kind[n] = $5
}

END {
    for (flower = 1; flower <= n; flower++) n_right += (nearest_kind(flower) == kind[flower])
    print "accuracy " n_right / n
}

function nearest_kind(flower,    other, votes, near, round, best) {
    for (other = 1; other <= n; other++) distance[other] = minkowski(flower, other)
    distance[flower] = 1e9
    for (round = 1; round <= k; round++) {
        near = 1
        for (other = 2; other <= n; other++) if (distance[other] < distance[near]) near = other
        votes[kind[near]]++
        distance[near] = 1e9
    }
    best = 0
    for (other = 1; other <= 2; other++) if (votes[other] > votes[best]) best = other
    return best
}

function minkowski(a, b,    i, apart, total) {
    for (i = 1; i <= 4; i++) {
        apart = length_of[a, i] - length_of[b, i]
        total += (apart < 0 ? -apart : apart) ^ p
    }
    return total
}
