// What a host may do from the page: finish, pause, invite, share, revoke, and try the model.
"use strict";
(function () {
  barn.who = { role: "still", acts: false, names: true, can: [] };

  // Show a dialog with a title and parts; returns it.
  function dialog(title) {
    var box = barn.el("dialog", { "aria-label": title, close: function () { box.remove(); } }, barn.el("h2", {}, title));
    for (var at = 1; at < arguments.length; at++) barn.add(box, arguments[at]);
    document.body.append(box);
    box.showModal();
    return box;
  }
  // Ask before an action; the answer is shown in its place.
  function confirm(title, text, name, given) {
    var told = barn.el("p", { role: "status" }), box;
    var done = barn.el("button", { click: function () {
      done.disabled = true;
      told.textContent = "...";
      barn.ask("/act/" + name, given()).then(function (answer) { answered(told, answer); }, function (error) { told.textContent = error.message; done.disabled = false; });
    } }, title);
    box = dialog(title, text, told, barn.el("div", { class: "row" }, done, barn.el("button", { click: function () { box.close(); } }, "Close")));
  }
  function answered(told, answer) {
    var link = answer.path ? location.origin + answer.path : "";
    barn.fill(told, answer.told, link ? barn.el("p", {}, barn.el("a", { href: link }, link)) : "");
    if (link) barn.ask("/qr?text=" + encodeURIComponent(link)).then(function (code) { told.append(barn.el("img", { class: "qr", alt: "The link as a QR code", src: code.image })); }, function () {});
  }
  function number(label, value) {
    var input = barn.el("input", { type: "number", value: value, min: "0", step: "any" });
    return { element: barn.el("label", { class: "row" }, label, input), get: function () { return Number(input.value); } };
  }
  function text(label) {
    var input = barn.el("input", { type: "text", maxlength: "300" });
    return { element: barn.el("label", { class: "row" }, label, input), get: function () { return input.value; } };
  }
  function button(title, work) { return barn.el("button", { click: work }, title); }

  // Return the buttons of the run.
  barn.hostActions = function (run) {
    if (!barn.who.acts || run.state === "finished") return null;
    var why = text("Reason"), uses = number("Machines", 1), hours = number("Hours", 24), days = number("Days", 30);
    return barn.el("span", { class: "row" },
      run.state === "paused"
        ? button("Continue", function () { confirm("Continue", barn.el("p", {}, "Workers get tasks again."), "continue", function () { return {}; }); })
        : button("Pause", function () { confirm("Pause", [barn.el("p", {}, "No tasks are given until you continue the run. Results of open tasks are still taken."), why.element], "pause", function () { return { reason: why.get() }; }); }),
      button("Finish", function () { confirm("Finish", barn.el("p", {}, "The run ends with what was accepted so far, and cannot be resumed."), "finish", function () { return {}; }); }),
      button("Invite", function () { confirm("Invite", [barn.el("p", {}, "An invite holds a secret: give its link only to people whom you want in the run."), uses.element, hours.element], "invite", function () { return { uses: uses.get(), hours: hours.get() }; }); }),
      button("Share", function () { confirm("Share", [barn.el("p", {}, "A link for observers, without names, losses per worker and addresses."), days.element], "share", function () { return { days: days.get() }; }); }));
  };
  // Return the buttons of one worker.
  barn.nodeActions = function (node) {
    if (!barn.who.acts) return null;
    var why = text("Reason"), days = number("Days", 30);
    return barn.el("div", { class: "row" },
      button("Link to its own page", function () { confirm("Link", [barn.el("p", {}, "A link to the page of " + node + " alone, for the person who lends it."), days.element], "share", function () { return { node: node, days: days.get() }; }); }),
      button("Revoke", function () { confirm("Revoke", [barn.el("p", {}, node + " may never take part in this run again."), why.element], "revoke", function () { return { node: node, reason: why.get() }; }); }));
  };
  // Return a box to try the model.
  barn.tryBox = function () {
    if (barn.who.can.indexOf("try") < 0) return null;
    var input = barn.el("textarea", { rows: "2", "aria-label": "A text or a formula for the model", placeholder: "(1 or -2) and 3, or the beginning of a text" }), answer = barn.el("pre", { role: "status", hidden: true, tabindex: "0" });
    var go = button("Try the model", function () {
      go.disabled = true;
      answer.hidden = false;
      answer.textContent = "the newest checkpoint is opened, which may take some seconds ...";
      barn.ask("/try", { text: input.value }).then(function (told) { answer.textContent = told.text; }, function (error) { answer.textContent = error.message; }).finally(function () { go.disabled = false; });
    });
    return barn.el("div", {}, barn.el("h3", {}, "Try it"), input, barn.el("div", {}, go), answer);
  };
})();
