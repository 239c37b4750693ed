// The workers: a row each with its lane of activities; only the rows that are seen exist.
"use strict";
(function () {
  var KINDS = ["training", "evaluating", "auditing", "uploading", "downloading", "waiting", "away"];
  var HEIGHT = 34, MORE = 8, LANES = 5000;
  var GLYPHS = { training: "▶", idle: "◦", starting: "…", suspect: "?", "held off": "‖", probation: "⚠", quarantined: "✖", banned: "✖", left: "–", killed: "–", revoked: "✖" };
  var COLUMNS = [
    ["worker"], ["state"], ["activities"], ["tokens", "tokens", barn.short], ["share", "share", barn.percent], ["tokens/s", "rate", barn.number],
    ["speed", "speed", function (v) { return barn.number(v) + "x"; }], ["accepted", "accepted", barn.number], ["refused", "refused", barn.number],
    ["staleness", "staleness", String], ["bound", "bound", barn.number], ["local steps", "local_steps", barn.number], ["payload", "payload", barn.bytes],
    ["of the model", "density", barn.percent], ["up", "up", rate], ["down", "down", rate], ["there", "availability", barn.percent],
    ["suspicion", "suspicion", barn.number], ["repeated", "repeated", barn.number], ["sound", "sound", barn.number], ["heard", "seen", ago], ["device", "device", String],
  ];
  function rate(value) { return value ? barn.bytes(value) + "/s" : "-"; }
  function ago(value) { return value === null ? "-" : barn.duration(value) + " ago"; }

  // Draw a lane: seven letters a bin, each the share of an activity in it.
  barn.lane = function (canvas, lane, bins, width) {
    var scale = window.devicePixelRatio || 1, wide = 240, high = 18;
    canvas.width = wide * scale;
    canvas.height = high * scale;
    var pen = canvas.getContext("2d"), colours = KINDS.map(barn.colour), step = canvas.width / Math.max(1, bins), told = KINDS.map(function () { return 0; });
    if (!lane) return;
    for (var bin = 0; bin < lane[1].length / 7; bin++) {
      var x = (lane[0] + bin) * step, y = canvas.height;
      if (barn.at !== null && (lane[0] + bin) * width > barn.at) break;
      for (var kind = 0; kind < 7; kind++) {
        var share = parseInt(lane[1][7 * bin + kind], 36) / 35;
        told[kind] += share;
        pen.fillStyle = colours[kind];
        pen.fillRect(x, y - share * canvas.height, Math.ceil(step), share * canvas.height);
        y -= share * canvas.height;
      }
    }
    var sum = told.reduce(function (a, b) { return a + b; }, 0) || 1;
    canvas.setAttribute("aria-label", KINDS.map(function (name, at) { return name + " " + Math.round(100 * told[at] / sum) + "%"; }).join(", "));
  };
  barn.legend = function () {
    return barn.el("div", { class: "legend" }, KINDS.map(function (name) { return barn.el("span", {}, barn.el("i", { class: "k-" + name }), name); }));
  };

  barn.views.workers = {
    title: "Workers",
    start: function (main) {
      var data = null, place = {}, order = [], sort = ["tokens", -1], lanes = {}, bins = 120, width = 1, chosen = null, first = -1, last = -1, wanted = "", frame = null;
      var find = barn.el("input", { type: "search", "aria-label": "Find workers by name or state", placeholder: "name or state", input: function () { arrange(); } });
      var count = barn.el("span", { class: "soft", role: "status" });
      var head = barn.el("tr", {}, COLUMNS.map(function (one) {
        var key = one[1] || (one[0] === "activities" ? null : one[0]);
        return barn.el("th", { scope: "col", class: one[2] && one[2] !== String ? "n" : "" }, key ? barn.el("button", { click: function () {
          sort = [key, sort[0] === key ? -sort[1] : key === "worker" || key === "state" ? 1 : -1];
          arrange();
        } }, one[0]) : one[0]);
      }));
      var above = barn.el("tr", { class: "space", "aria-hidden": "true" }, barn.el("td", { colspan: COLUMNS.length }));
      var below = barn.el("tr", { class: "space", "aria-hidden": "true" }, barn.el("td", { colspan: COLUMNS.length }));
      var body = barn.el("tbody", {}), table = barn.el("table", { "aria-label": "Workers" }, barn.el("thead", {}, head), body);
      var fleet = barn.el("div", { class: "fleet", tabindex: "0", role: "region", "aria-label": "Workers", scroll: later }, table);
      var panel = barn.el("div", { "aria-live": "polite" });
      barn.fill(main, barn.el("div", { class: "row" }, find, count), barn.legend(), fleet, panel);

      function value(row, key) { return row[place[key]]; }
      function arrange() {
        if (!data) return;
        var asked = find.value.trim().toLowerCase(), key = sort[0];
        order = Object.keys(data.rows).filter(function (name) {
          return !asked || name.toLowerCase().indexOf(asked) >= 0 || String(value(data.rows[name], "state")).indexOf(asked) >= 0;
        });
        order.sort(function (a, b) {
          if (key === "worker") return sort[1] * a.localeCompare(b);
          var one = value(data.rows[a], key), other = value(data.rows[b], key);
          if (one === other) return a < b ? -1 : 1;
          if (one === null) return 1;
          if (other === null) return -1;
          return sort[1] * (one < other ? -1 : 1);
        });
        var told = barn.number(order.length) + (asked ? " of " + barn.number(Object.keys(data.rows).length) : "") + (order.length === 1 ? " worker" : " workers");
        if (count.textContent !== told) count.textContent = told;
        table.setAttribute("aria-rowcount", String(order.length + 1));
        first = -1;
        rows();
      }
      function later() { if (!frame) frame = requestAnimationFrame(function () { frame = null; rows(); }); }
      // Show the rows around those that are seen; rows that stay are kept.
      function rows() {
        var seen = Math.max(0, Math.floor(fleet.scrollTop / HEIGHT)), until = Math.min(order.length, seen + Math.ceil((fleet.clientHeight || 600) / HEIGHT) + 1);
        if (first >= 0 && seen >= first && until <= last) return;
        var kept = {}, fresh = [], again = first < 0;
        if (!again) body.querySelectorAll("tr[data-name]").forEach(function (one) { kept[one.dataset.name] = one; });
        first = Math.max(0, seen - MORE);
        last = Math.min(order.length, until + MORE);
        above.firstChild.style.height = first * HEIGHT + "px";
        below.firstChild.style.height = (order.length - last) * HEIGHT + "px";
        barn.fill(body, first ? above : null, order.slice(first, last).map(function (name, at) {
          if (!kept[name]) fresh.push(kept[name] = line(name, first + at));
          return kept[name];
        }), last < order.length ? below : null);
        if (!order.length) barn.fill(body, barn.el("tr", {}, barn.el("td", { colspan: COLUMNS.length }, find.value ? "No worker fits that." : "No worker has joined yet.")));
        paint(fresh);
        fetchLanes(false);
      }
      function line(name, at) {
        var row = data.rows[name], state = value(row, "state");
        return barn.el("tr", { "aria-rowindex": String(at + 2), "aria-selected": chosen === name ? "true" : null, "data-name": name }, COLUMNS.map(function (one) {
          if (one[0] === "worker") return barn.el("td", {}, barn.el("button", { click: function () { choose(name); }, title: "Why, and its story" }, name));
          if (one[0] === "state") return barn.el("td", {}, (GLYPHS[state] || "") + " " + state);
          if (one[0] === "activities") return barn.el("td", {}, barn.el("canvas", { class: "lane", role: "img", "aria-label": "not fetched yet" }));
          return barn.el("td", { class: one[2] === String ? "" : "n" }, one[2](value(row, one[1])));
        }));
      }
      function paint(some) {
        (Array.isArray(some) ? some : body.querySelectorAll("tr[data-name]")).forEach(function (one) {
          barn.lane(one.querySelector("canvas"), lanes[one.dataset.name], bins, width);
        });
      }
      function fetchLanes(again) {
        var names = order.slice(Math.max(0, first), last), asked = names.join("\n");
        if (!names.length || (asked === wanted && !again)) return;
        wanted = asked;
        (barn.embedded ? Promise.resolve(barn.embedded.lanes) : barn.ask("/lanes?" + names.slice(0, 100).map(function (name) { return "node=" + encodeURIComponent(name); }).join("&"))).then(function (found) {
          Object.assign(lanes, found.lanes);
          width = found.width;
          var end = barn.time() ? barn.time().end : 0;
          bins = Math.max(1, end ? Math.ceil(end / width) : 120);
          paint(null);
        }, function () { wanted = ""; });
      }
      function choose(name) {
        chosen = name;
        body.querySelectorAll("tr[data-name]").forEach(function (one) {
          if (one.dataset.name === name) one.setAttribute("aria-selected", "true"); else one.removeAttribute("aria-selected");
        });
        var text = barn.el("p", {}, "..."), story = barn.el("div", {});
        barn.fill(panel, barn.card(name, text, barn.nodeActions(name), story));
        if (barn.embedded) { text.textContent = "barnraise story RUN_DIR tells what this worker did."; return; }
        barn.ask("/why/" + encodeURIComponent(name)).then(function (told) { text.textContent = told.why || "nothing is known of it"; }, function (error) { text.textContent = error.message; });
        barn.ask("/story/" + encodeURIComponent(name)).then(function (told) {
          barn.fill(story, barn.table(["at", "what"], told.lines.slice().reverse().map(function (one) { return [barn.duration(one[0]), one[1]]; }), [], "Story of " + name));
        }, function () {});
      }
      var timer = setInterval(function () { if (!document.hidden) fetchLanes(true); }, LANES);
      var ends = [barn.follow("workers", function (found) {
        var before = data;
        data = found;
        found.columns.forEach(function (name, at) { place[name] = at; });
        if (document.activeElement && body.contains(document.activeElement) && before) update(); else arrange();
      }), barn.ontime(function () { paint(null); })];
      // Change the figures of the rows in place: the focus stays where it is.
      function update() {
        body.querySelectorAll("tr[data-name]").forEach(function (shown) {
          var row = data.rows[shown.dataset.name];
          if (!row) return;
          COLUMNS.forEach(function (one, at) {
            if (one[0] === "state") shown.children[at].textContent = (GLYPHS[value(row, "state")] || "") + " " + value(row, "state");
            else if (one[2]) shown.children[at].textContent = one[2](value(row, one[1]));
          });
        });
      }
      return function () { clearInterval(timer); ends.forEach(function (end) { end(); }); };
    },
  };
})();
