// The first view: is it learning, who is here, what is wrong; then curves, samples and events.
"use strict";
(function () {
  function lossUntil(points) { return barn.at === null ? points : points.filter(function (one) { return one[1] <= barn.at; }); }

  function learning(run, points) {
    var last = points[points.length - 1], first = points[0];
    if (!last) return [barn.el("p", { class: "big" }, "not measured yet"), barn.el("p", { class: "soft" }, run.works ? "The first loss comes with the next evaluation." : "No loss was measured.")];
    var before = points[Math.max(0, points.length - 1 - Math.max(1, Math.round(points.length / 5)))];
    var falls = last[2] < before[2] - 1e-9, word = points.length < 2 ? "measured once" : falls ? "yes, the loss falls" : "the loss does not fall now";
    return [
      barn.el("p", { class: "big" }, barn.loss(last[2])),
      barn.el("p", { class: falls || points.length < 2 ? "good" : "warn" }, word),
      barn.el("p", { class: "soft" }, "held out, nats a token, version " + last[3] + "; " + barn.loss(first[2]) + " at the start" +
        (last[4] === 1 ? "; nodes of one owner alone measured it" : "")),
    ];
  }
  function people(data, time) {
    if (barn.at !== null && time) {
      var there = 0;
      time.presence.forEach(function (one) { if (one[0] <= barn.at) there = one[1]; });
      return [barn.el("p", { class: "big" }, barn.number(there)), barn.el("p", { class: "soft" }, "took part at that time")];
    }
    var counts = data.counts, names = Object.keys(counts).sort();
    if (!names.length) return [barn.el("p", { class: "big" }, "nobody yet"), barn.el("p", {}, "Workers join by an invite: ", barn.el("a", { href: "/join" }, "the join page"), ".")];
    return [
      barn.el("p", { class: "big" }, barn.number(data.run.present) + " of " + barn.number(data.run.nodes)),
      barn.el("ul", { class: "plain" }, names.map(function (name) { return barn.el("li", {}, barn.number(counts[name]) + " " + name); })),
    ];
  }
  function wrong(data, time) {
    var list = barn.at !== null && time ? barn.eventsUntil(time.events).slice(-4).map(function (one) { return ["info", one[3]]; }) : data.troubles.slice();
    if (barn.at === null && data.run.waits && data.run.state !== "finished") list.unshift(["warn", data.run.waits]);
    if (barn.at !== null) return [barn.el("p", { class: "soft" }, "the last events by then"), barn.el("ul", { class: "plain" }, list.map(function (one) { return barn.el("li", {}, one[1]); }))];
    if (!list.length) return [barn.el("p", { class: "big good" }, "nothing"), barn.el("p", { class: "soft" }, data.run.works ? "No alert holds." : "The run does not work now: " + data.run.state + ".")];
    return [barn.el("ul", { class: "plain" }, list.map(function (one) {
      return barn.el("li", { class: one[0] === "page" ? "bad" : one[0] === "warn" ? "warn" : "" }, (one[0] === "page" ? "Act now: " : one[0] === "warn" ? "Look: " : "") + one[1]);
    }))];
  }
  function progress(data, time) {
    var run = data.run, tokens = barn.at !== null && time ? barn.until("tokens").sum : run.tokens, share = Math.min(1, tokens / Math.max(1, run.budget));
    var lines = [
      barn.el("p", { class: "big" }, barn.percent(share)),
      barn.el("div", { class: "bar", role: "progressbar", "aria-label": "Tokens", "aria-valuemin": "0", "aria-valuemax": "100", "aria-valuenow": Math.round(100 * share) },
        barn.el("div", {})),
      barn.el("p", {}, barn.short(tokens) + " of " + barn.short(run.budget) + " tokens, " + barn.number(run.rate) + " a second; version " + barn.number(run.version)),
    ];
    lines[1].firstChild.style.width = 100 * share + "%";
    if (barn.at === null && data.forecast && run.works) lines.push(barn.el("p", {}, data.forecast.text));
    lines.push(barn.el("p", { class: "soft" }, "so far " + barn.number(data.cost.machine_hours) + " machine hours, " + barn.number(data.cost.work_hours) +
      " of them in training; " + barn.bytes(run.up) + " up, " + barn.bytes(run.down) + " down"));
    return lines;
  }
  function samples(found) {
    if (!found.length) return [barn.el("p", { class: "soft" }, "No sample yet: evaluation.samples in the run file asks for them.")];
    return [barn.el("p", { class: "soft" }, "version " + found[0])].concat(found[1].map(function (one) {
      return barn.el("pre", { tabindex: "0" }, one[0], barn.el("strong", {}, one[1] || "(nothing)"));
    }));
  }
  function column(points, at) { return points.map(function (one) { return one[at]; }); }

  barn.views.overview = {
    title: "Overview",
    start: function (main) {
      var data = null, parts = {}, names = { learning: "Is it learning?", people: "Who is here?", wrong: "What is wrong?", progress: "How far is it?" };
      Object.keys(names).forEach(function (name) { parts[name] = barn.el("div", {}); });
      var byTokens = barn.chart({ title: "Held-out loss by tokens", x: barn.short, y: barn.loss, xlabel: "tokens", ylabel: "nats a token", series: [{ label: "held out", points: true }] });
      var byTime = barn.chart({ title: "Loss by time", x: barn.duration, y: barn.loss, xlabel: "time", ylabel: "nats a token",
        series: [{ label: "held out", points: true }, { label: "training, as workers tell it", dash: [5, 4] }] });
      var rate = barn.chart({ title: "Throughput", x: barn.duration, y: barn.short, xlabel: "time", ylabel: "tokens a second", series: [{ label: "accepted tokens a second", bars: true, colour: "c0" }] });
      var sites = barn.el("div", {}), newest = barn.el("div", {}), news = barn.el("ul", { class: "plain" }), metrics = barn.el("div", {}), best = barn.el("div", {});
      var sitesChart = null, sitesOf = "";
      barn.fill(main,
        barn.el("div", { class: "cards" }, Object.keys(names).map(function (name) { return barn.card(names[name], parts[name]); })),
        barn.el("div", { class: "cards" }, barn.card("Loss by tokens", byTokens.element), barn.card("Loss by time", byTime.element)),
        barn.el("div", { class: "cards" }, barn.card("Throughput", rate.element), barn.card("Newest events", news)),
        barn.el("div", { class: "cards" }, barn.card("The model's newest samples", newest, barn.tryBox()), barn.card("Metrics", metrics), barn.card("Most tokens", best)),
        sites);
      [byTokens, byTime, rate].forEach(function (one) { one.show(); });
      function draw() {
        var time = barn.time();
        if (!data) return;
        var points = lossUntil(data.loss);
        barn.fill(parts.learning, learning(data.run, points));
        barn.fill(parts.people, people(data, time));
        barn.fill(parts.wrong, wrong(data, time));
        barn.fill(parts.progress, progress(data, time));
        var last = points[points.length - 1];
        var told = last ? "from " + barn.loss(points[0][2]) + " to " + barn.loss(last[2]) + " in " + barn.short(last[0]) + " tokens" : "no loss was measured yet";
        byTokens.update([column(points, 0), column(points, 2)], told);
        if (time) drawTime(time, points);
        barn.fill(news, (time && barn.at !== null ? barn.eventsUntil(time.events).slice(-12) : data.news).slice().reverse().map(function (one) {
          return barn.el("li", {}, barn.el("span", { class: "soft" }, barn.duration(one[0]) + " "), one[3]);
        }));
        if (!data.news.length) barn.fill(news, barn.el("li", { class: "soft" }, "Nothing has happened yet."));
        barn.fill(newest, samples(data.samples));
        barn.fill(metrics, Object.keys(data.metrics).length ? barn.table(["metric", "newest", "version"], Object.keys(data.metrics).map(function (name) {
          var values = data.metrics[name], end = values[values.length - 1];
          return [name, barn.number(end[1]), String(end[0])];
        }), [1, 2], "Metrics") : barn.el("p", { class: "soft" }, "No metric besides the loss is measured."));
        barn.fill(best, data.best.length ? barn.table(["worker", "state", "tokens", "tokens/s"], data.best.map(function (one) {
          return [one[0], one[1], barn.short(one[2]), barn.number(one[3])];
        }), [2, 3], "Most tokens") : barn.el("p", { class: "soft" }, "Nobody has trained yet."));
      }
      function drawTime(time, points) {
        var bins = barn.until("tokens").bins, seconds = [], rates = [];
        for (var at = 0; at < bins; at++) {
          seconds.push((at + 0.5) * time.width);
          rates.push(time.tokens[at] / (at === time.tokens.length - 1 ? Math.max(1e-9, Math.min(time.width, time.end - at * time.width)) : time.width));
        }
        rate.update([seconds, rates], "tokens a second in steps of " + barn.duration(time.width));
        var told = {};
        points.forEach(function (one) { told[one[1]] = [one[2], null]; });
        for (at = 0; at < bins; at++) if (time.training[at]) told[seconds[at]] = [(told[seconds[at]] || [null])[0], time.training[at]];
        var places = Object.keys(told).map(Number).sort(function (a, b) { return a - b; });
        byTime.update([places, places.map(function (x) { return told[x][0]; }), places.map(function (x) { return told[x][1]; })],
          "held-out loss, and the training loss that workers tell");
        drawSites(time, seconds);
      }
      function drawSites(time, seconds) {
        var names = Object.keys(time.sites || {});
        if (names.length < 2) return;
        if (sitesOf !== names.join("\n")) {
          if (sitesChart) sitesChart.close();
          sitesOf = names.join("\n");
          sitesChart = barn.chart({ title: "Training loss of each worker", x: barn.duration, y: barn.loss, xlabel: "time", ylabel: "nats a token",
            series: names.map(function (name, at) { return { label: name, dash: at > 5 ? [4, 4] : undefined }; }) });
          barn.fill(sites, barn.card("Training loss of each worker", sitesChart.element));
          sitesChart.show();
        }
        sitesChart.update([seconds].concat(names.map(function (name) { return time.sites[name].slice(0, seconds.length); })), "as the busiest workers tell it of their own rows");
      }
      var ends = [barn.follow("overview", function (found) { data = found; draw(); }), barn.ontime(draw)];
      return function () {
        ends.forEach(function (end) { end(); });
        [byTokens, byTime, rate].concat(sitesChart || []).forEach(function (one) { one.close(); });
      };
    },
  };
})();
