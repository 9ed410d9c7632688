package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// result of one measurement: appends a second, and milliseconds of one.
type result struct {
	Engine         string
	Appenders      int
	Rate, P50, P99 float64
}

// titles of engines as the documentation calls them.
var titles = map[string]string{
	"nuthatch": "Nuthatch", "nuthatch-server": "Nuthatch, a server", "rmq": "RocksMQ", "wp": "Woodpecker, files",
}

// table of all rounds, and how often as many appends of Nuthatch each other one has at the most appenders.
func table(engines []string, all []result) string {
	var out strings.Builder
	out.WriteString("| log | appenders | appends/s | p50 ms | p99 ms |\n|---|---:|---:|---:|---:|\n")
	for _, engine := range engines {
		for _, appenders := range appenderCounts {
			of := func(value func(result) float64) []float64 { return values(all, engine, appenders, value) }
			fmt.Fprintf(&out, "| %s | %d | %s | %s | %s |\n", titles[engine], appenders,
				cell(of(func(r result) float64 { return r.Rate }), 0),
				cell(of(func(r result) float64 { return r.P50 }), 2),
				cell(of(func(r result) float64 { return r.P99 }), 2))
		}
	}
	most := slices.Max(appenderCounts)
	rate := func(r result) float64 { return r.Rate }
	ours := values(all, "nuthatch", most, rate)
	for _, engine := range engines {
		theirs := values(all, engine, most, rate)
		if engine != "nuthatch" && len(ours) > 0 && len(theirs) > 0 {
			fmt.Fprintf(&out, "\nWith %d appenders Nuthatch takes %.1f times as many as %s.\n", most, median(ours)/median(theirs), titles[engine])
		}
	}
	return out.String()
}

func values(all []result, engine string, appenders int, value func(result) float64) []float64 {
	var found []float64
	for _, one := range all {
		if one.Engine == engine && one.Appenders == appenders {
			found = append(found, value(one))
		}
	}
	slices.Sort(found)
	return found
}

func median(sorted []float64) float64 {
	middle := len(sorted) / 2
	if len(sorted)%2 == 0 {
		return (sorted[middle-1] + sorted[middle]) / 2
	}
	return sorted[middle]
}

// cell is a median; where there are several rounds, also the least and the most.
func cell(sorted []float64, digits int) string {
	if len(sorted) == 0 {
		return "–"
	}
	if len(sorted) == 1 {
		return number(sorted[0], digits)
	}
	return fmt.Sprintf("%s (%s–%s)", number(median(sorted), digits), number(sorted[0], digits), number(sorted[len(sorted)-1], digits))
}

// number with commas between thousands.
func number(value float64, digits int) string {
	text := strconv.FormatFloat(value, 'f', digits, 64)
	whole, rest, _ := strings.Cut(text, ".")
	var out strings.Builder
	for at, digit := range whole {
		if at > 0 && (len(whole)-at)%3 == 0 {
			out.WriteByte(',')
		}
		out.WriteRune(digit)
	}
	if digits > 0 {
		return out.String() + "." + rest
	}
	return out.String()
}
