// Staleness, bandwidth, refusals, faults, audits, sanctions, security events, the standby.
"use strict";
(function () {
  var SECURITY = ["revoked", "rekeyed", "convicted", "discredited", "offended", "held_off", "disputed", "voided"];
  function pairs(table, words) {
    return Object.keys(table).filter(function (name) { return table[name]; }).map(function (name) { return [(words || {})[name] || name.replace(/_/g, " "), barn.number(table[name])]; });
  }
  function list(caption, header, rows, none, right) { return rows.length ? barn.table(header, rows, right, caption) : barn.el("p", { class: "soft" }, none); }

  barn.views.checks = {
    title: "Checks",
    start: function (main) {
      var data = null, parts = {};
      ["refusals", "sent", "faults", "audits", "sanctions", "security", "standby"].forEach(function (name) { parts[name] = barn.el("div", {}); });
      var late = barn.chart({ title: "Staleness", x: barn.number, y: barn.short, xlabel: "versions late", ylabel: "contributions", series: [{ label: "contributions", bars: true, colour: "c0" }] });
      var wire = barn.chart({ title: "Bandwidth", x: barn.duration, y: barn.bytes, xlabel: "time", ylabel: "bytes a second", series: [{ label: "up" }, { label: "down", dash: [6, 4] }] });
      var verdicts = barn.chart({ title: "Contributions", x: barn.duration, y: barn.number, xlabel: "time", ylabel: "a step of time", series: [{ label: "accepted" }, { label: "refused", dash: [6, 4] }] });
      barn.fill(main,
        barn.el("div", { class: "cards" }, barn.card("Staleness", late.element), barn.card("Bandwidth", wire.element), barn.card("Contributions", verdicts.element)),
        barn.el("div", { class: "cards" }, barn.card("Refused contributions", parts.refusals), barn.card("Bytes of results by kind", parts.sent), barn.card("Faults and recoveries", parts.faults),
          barn.card("Audits", parts.audits), barn.card("Sanctions", parts.sanctions), barn.card("Security events", parts.security), barn.card("Standby", parts.standby)));
      [late, wire, verdicts].forEach(function (one) { one.show(); });
      function draw() {
        if (!data) return;
        var time = barn.time(), total = data.staleness.reduce(function (sum, one) { return sum + one[1]; }, 0);
        late.update([data.staleness.map(function (one) { return one[0]; }), data.staleness.map(function (one) { return one[1]; })], barn.number(total) + " accepted contributions by the versions that they were late");
        if (time) {
          var seconds = [], bins = barn.until("tokens").bins;
          for (var at = 0; at < bins; at++) seconds.push((at + 0.5) * time.width);
          var per = function (name) { return time[name].slice(0, bins).map(function (one) { return one / time.width; }); };
          wire.update([seconds, per("up"), per("down")], "payloads and headers of all workers");
          verdicts.update([seconds, time.accepted.slice(0, bins), time.refused.slice(0, bins)], "in steps of " + barn.duration(time.width));
        }
        barn.fill(parts.refusals, list("refused contributions", ["contributions", "reason"], data.refusals.map(function (one) { return [barn.number(one[1]), one[0]]; }), "None was refused.", [0]));
        barn.fill(parts.sent, list("bytes by kind", ["kind", "bytes"], Object.keys(data.sent).map(function (name) { return [name, barn.bytes(data.sent[name])]; }), "Nothing was sent yet.", [1]));
        var faults = pairs(data.changes).concat(pairs({ "work taken back": data.events.released, "late work copied": data.events.copied, "controller started again": data.events.resumed, "failed checkpoint": data.events.checkpoint_failed, "malformed frame": data.frames }));
        barn.fill(parts.faults, list("faults and recoveries", ["what", "times"], faults, "None.", [1]));
        var a = data.audits, made = data.made_of;
        barn.fill(parts.audits, barn.el("p", {}, barn.number(a[0]) + " contributions were repeated by other nodes, " + barn.number(a[1]) + " scored by the controller, " + barn.number(a[2]) + " audits had no result; " +
          barn.number(a[3]) + " of " + barn.number(a[4]) + " contributions are signed."),
          made.nodes ? barn.el("p", {}, "The newest version is made of " + barn.number(made.nodes) + " nodes" + (made.f === null ? "" : "; its rule withstands " + made.f + " liars" + (made.guaranteed ? "" : ", without a guarantee")) + ".") : null);
        barn.fill(parts.sanctions, list("sanctions", ["worker", "state", "until", "why"], data.doubts.map(function (one) { return [one[0], one[1], one[2] === null ? "for good" : barn.duration(one[2]), one[3]]; }), "No worker is held off."));
        var secure = {};
        SECURITY.forEach(function (name) { secure[name] = data.events[name] || data.changes[name] || 0; });
        barn.fill(parts.security, list("security events", ["what", "times"], pairs(secure), "None.", [1]));
        barn.fill(parts.standby, barn.el("p", { class: data.lowered === null ? "" : "warn" }, data.standby[0] ? data.standby[0] + ": " + data.standby[1] : data.standby[1] || "No standby follows."),
          data.lowered === null ? null : barn.el("p", { class: "warn" }, "Contributions are acknowledged without one since " + barn.duration(data.lowered) + "."));
      }
      var ends = [barn.follow("checks", function (found) { data = found; draw(); }), barn.ontime(draw)];
      return function () { ends.forEach(function (end) { end(); }); [late, wire, verdicts].forEach(function (one) { one.close(); }); };
    },
  };
})();
