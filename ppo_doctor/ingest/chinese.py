"""Chinese words of trainers' logs as the English ones that the grammar of names reads."""

from __future__ import annotations

import re
from collections.abc import Mapping

#: English → Chinese, simplified and traditional; an empty word says nothing about what a number is.
_WORDS: Mapping[str, str] = {
    "episode reward": "累计奖励 累积奖励 累計獎勵 累積獎勵 总奖励 總獎勵 回合奖励 回合獎勵 滑动平均奖励 移动平均奖励",
    "episode return": "累计回报 累积回报 累計回報 累積回報 总回报 總回報 回合回报 回合回報",
    "reward": "奖励 獎勵 得分 分数 分數",
    "return": "回报 回報 收益",
    "mean": "平均 均值 平均值",
    "max": "最大 最高 最大值",
    "min": "最小 最低 最小值",
    "std": "标准差 標準差",
    "variance": "方差",
    "total": "总 總",
    "running": "滑动 移动 滑動 移動",
    "evaluation": "评估 評估 测试 測試 验证 驗證",
    "training": "训练 訓練",
    "policy": "策略 演员 演員",
    "value": "价值 價值 状态价值 狀態價值 值函数 值函數 价值函数 價值函數",
    "critic": "评论家 評論家 评价网络",
    "loss": "损失 損失 损失函数 損失函數 损失值",
    "surrogate": "替代 代理 代理目标",
    "entropy": "熵",
    "approx": "近似",
    "reference": "参考 參考",
    "clip": "裁剪 剪裁 剪切 截断 截斷",
    "fraction": "比例 占比",
    "ratio": "比率 比值 概率比 機率比",
    "importance": "重要性 重要性采样",
    "advantage": "优势 優勢",
    "learning_rate": "学习率 學習率",
    "gradient": "梯度",
    "norm": "范数 範數",
    "steps": "步数 步數 时间步 時間步",
    "step": "步",
    "iteration": "迭代 迭代次数",
    "epoch": "轮次 轮数 輪次",
    "update": "更新",
    "count": "次数 次數 数量 數量",
    "episode": "回合 幕 轨迹",
    "length": "长度 長度",
    "completion": "回复 回答 响应 生成 回覆",
    "token": "词元 令牌",
    "success rate": "成功率",
    "win_rate": "胜率 勝率",
    "explained_variance": "解释方差 可解释方差 解釋變異",
    "coefficient": "系数 係數 权重 權重",
    "discount_factor": "折扣因子 折扣",
    "batch": "批次 批量",
    "minibatch": "小批量 小批次",
    "size": "大小",
    "temperature": "温度",
    "environment": "环境 環境",
    "action": "动作 動作",
    "old": "旧 舊",
    "new": "新",
    "time": "时间 時間 耗时 用时 剩余 秒",
    "memory": "显存 内存",
    "throughput": "吞吐",
    "discriminator": "判别器",
    "error": "误差 誤差",
    "": "散度 网络 網絡 每 的 当前 目前",
}
_ENGLISH = {chinese: english for english, words in _WORDS.items() for chinese in words.split()}
_SPOKEN = re.compile("|".join(sorted(_ENGLISH, key=len, reverse=True)))
#: What the table leaves over is a word that nobody knows.
_IDEOGRAPHS = re.compile("[\u4e00-\u9fff]+")


#: What a sign says of the number beside it: "rho^" is the largest, "±R" the deviation.
_TOP = re.compile(r"(?<=[^\W\d])\^(?!\w)")
#: A unit that is written short: "KL[mn]", "drift_mn".
_MILLINATS = re.compile(r"(?:[\[(_ ]|(?<=KL))mn(?:[\])]|\Z)")
#: A name that goes on in small letters behind this one: "KLref", "dKLalt", "KLr".
_TO_REFERENCE = re.compile(r"KL_r(?![a-z])")
_KL = re.compile(r"(?<![A-Z])KL(?=[a-z])")


def english(key: str) -> str:
    """Return a key with its Chinese words in English; one that is not in the table becomes a word nobody knows."""
    if "^" in key:
        key = _TOP.sub("_max", key)
    if "KL" in key:
        key = _TO_REFERENCE.sub("KL_ref", _KL.sub("KL_", key))
    if "mn" in key:
        key = _MILLINATS.sub("_mnat ", key)
    if key.isascii():
        return key
    key = key.replace("±", " std_")
    return _IDEOGRAPHS.sub(" ideograph ", _SPOKEN.sub(lambda found: f" {_ENGLISH[found[0]]} ", key))
